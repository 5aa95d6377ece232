#include <gantry/ipc/ipc.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/device/peer.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "device/peer_access.hpp"
#include "ipc/handle.hpp"
#include "ipc/peer.hpp"
#include "tests/ipc/exporter_fixture.hpp"
#include "tests/ipc/ipc_text.hpp"
#include "tests/ipc/ipc_worker_process.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/pipe_process.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::eventually;
using gantry::testing::ExporterProcess;
using gantry::testing::FaultDriver;
using gantry::testing::from_text;
using gantry::testing::IpcWorker;
using gantry::testing::kExportedBytes;
using gantry::testing::kExportedValue;
using gantry::testing::kMib;
using gantry::testing::StreamHold;
using ::testing::Contains;
using ::testing::Not;
using ::testing::ThrowsMessage;

class IpcTest : public gantry::testing::ExporterTest {};

INSTANTIATE_TEST_SUITE_P(Memory, IpcTest, ::testing::Values("heap", "chunks"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(IpcTest, ImporterSeesTheWorkBeforeTheExport) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  const Stream stream = Stream::current();
  const ImportedBlock block = import_ipc(handle, Device::cuda(0));
  EXPECT_EQ(block.bytes(), kExportedBytes);
  EXPECT_EQ(block.device(), Device::cuda(0));
  ASSERT_NE(block.data(), nullptr);
  EXPECT_FALSE(stream.query()) << "the import does not wait for the exporter's stream";
  process.start_release();
  EXPECT_EQ(read(block, stream), std::vector<std::uint8_t>(kExportedBytes, kExportedValue));
}

TEST_P(IpcTest, ExporterSeesWhatTheImporterWrites) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  const ImportedBlock block = import_ipc(handle, Device::cuda(0));
  process.release();
  const Stream stream = Stream::current();
  driver().fill(block.data(), 5, block.bytes(), stream.native());
  stream.synchronize();
  EXPECT_EQ(process.first_byte(), 5);
  EXPECT_EQ(process.quit(), 0) << "ended while its memory is imported";
}

TEST_P(IpcTest, MapsAnExtentOnceForAllItsBlocks) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  const IpcHandle& neighbour = process.neighbour;
  process.release();
  FaultDriver driver;
  {
    std::optional<ImportedBlock> first = import_ipc(handle, Device::cuda(0));
    const ImportedBlock again = import_ipc(handle, Device::cuda(0));
    const ImportedBlock other = import_ipc(neighbour, Device::cuda(0));
    EXPECT_EQ(first->data(), again.data());
    EXPECT_NE(first->data(), other.data());
    EXPECT_EQ(ipc_stats().imports, 3u);
    EXPECT_GE(ipc_stats().mapped_bytes, kExportedBytes);
    EXPECT_EQ(maps(driver), 1u);
    first.reset();
    settle();
    EXPECT_EQ(ipc_stats().imports, 2u);
    EXPECT_EQ(unmaps(driver), 0u);
  }
  settle();
  EXPECT_EQ(unmaps(driver), 1u) << "the mapping outlived its last block";
  expect_nothing_imported();
  {
    const ImportedBlock anew = import_ipc(handle, Device::cuda(0));
    EXPECT_EQ(maps(driver), 2u);
    EXPECT_LE(driver.calls("open_event"), 2u) << "an event is opened once per exporter";
  }
  settle();
}

TEST_P(IpcTest, ImportsOntoAPeer) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!can_access_peer(Device::cuda(1), Device::cuda(0))) GTEST_SKIP() << "needs peer access";
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  const ImportedBlock block = import_ipc(handle, Device::cuda(1));
  EXPECT_EQ(block.device(), Device::cuda(1));
  process.start_release();
  EXPECT_EQ(read(block, Stream::current(Device::cuda(1))),
            std::vector<std::uint8_t>(kExportedBytes, kExportedValue));
}

TEST_P(IpcTest, EachDeviceHasAMappingOfItsOwn) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!can_access_peer(Device::cuda(1), Device::cuda(0))) GTEST_SKIP() << "needs peer access";
  ExporterProcess process(GetParam());
  process.release();
  const FaultDriver driver;
  const ImportedBlock first = import_ipc(process.handle, Device::cuda(0));
  const ImportedBlock second = import_ipc(process.handle, Device::cuda(1));
  EXPECT_EQ(maps(driver), 2u);
  for (const ImportedBlock* block : {&first, &second}) {
    EXPECT_GE(ipc_stats(block->device()).mapped_bytes, kExportedBytes);
    EXPECT_EQ(read(*block, Stream::current(block->device())),
              std::vector<std::uint8_t>(kExportedBytes, kExportedValue));
  }
}

TEST_P(IpcTest, LaterPeersOfTheImportingDeviceMayUseTheMemory) {
  GANTRY_REQUIRE_DEVICES(4);
  // Access lasts as long as the process, so each instance has a pair of its own.
  const bool is_heap = std::string(GetParam()) == "heap";
  if (is_heap && platform() == Platform::cuda && allocator_backend() == "native") {
    GTEST_SKIP() << "CUDA opens memory of cudaMalloc for the importing device alone";
  }
  const Device importing = Device::cuda(is_heap ? 2 : 3);
  const Device peer = Device::cuda(is_heap ? 3 : 2);
  for (const auto& [from, to] : {std::pair(importing, Device::cuda(0)),
                                 std::pair(peer, Device::cuda(0)), std::pair(peer, importing)}) {
    if (!can_access_peer(from, to)) GTEST_SKIP() << "needs peer access";
  }
  ASSERT_THAT(devices_with_access_to(importing.index), Not(Contains(peer.index)));
  ExporterProcess process(GetParam());
  process.release();
  const ImportedBlock block = import_ipc(process.handle, importing);
  enable_peer_access(peer, importing);
  const Stream stream = Stream::current(peer);
  driver().fill(block.data(), 9, block.bytes(), stream.native());
  EXPECT_EQ(read(block, stream), std::vector<std::uint8_t>(kExportedBytes, 9));
}

TEST_P(IpcTest, HandlesThatDisagreeAboutAnExtentAreRefused) {
  const Stream stream = Stream::from_pool();
  ExporterProcess exporter(GetParam());
  exporter.release();
  std::optional<Block> block = import_on(stream, exporter.handle);
  IpcHandleFields fields = decode(exporter.handle);
  fields.extent_bytes += 64 * kMib;
  fields.offset = fields.extent_bytes - fields.bytes;  // past the mapping
  EXPECT_THROW(static_cast<void>(import_on(stream, encode(fields))), InvalidArgument);
  drop(block, stream);
}

TEST_P(IpcTest, DeadExporterIsAnError) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  const int pid = process.pid();
  process.kill(SIGKILL);
  EXPECT_EQ(process.wait(), -SIGKILL);
  EXPECT_THAT([&] { static_cast<void>(import_ipc(handle, Device::cuda(0))); },
              ThrowsMessage<PeerLostError>("import_ipc: exporter process " + std::to_string(pid) +
                                           " has ended"));
}

// An exporter that was stopped replies late, after its request has timed out.
TEST_P(IpcTest, LateRepliesAreNotTakenForOthers) {
  if (std::string(GetParam()) == "heap" && allocator_backend() != "vmm") {
    GTEST_SKIP() << "segments are opened without a request";
  }
  IpcWorker worker(GetParam(), 0);
  // Each block has chunks of its own, so that each import sends a request.
  const std::size_t mib = std::string(GetParam()) == "heap" ? 40 : 4;
  const auto handles = worker.export_blocks(4, mib << 20, 60);
  ASSERT_EQ(handles.size(), 4u);
  const auto first_byte = [&](std::size_t i) {
    const Stream stream = Stream::current(Device::cuda(0));
    return read(import_on(stream, from_text(handles[i])), stream).front();
  };
  EXPECT_EQ(first_byte(0), 60);
  worker.stop();
  IpcPeer::set_reply_timeout(std::chrono::milliseconds(100));
  EXPECT_THROW(static_cast<void>(import_ipc(from_text(handles[1]), Device::cuda(0))), TimeoutError);
  worker.kill(SIGCONT);
  IpcPeer::set_reply_timeout(std::chrono::seconds(60));
  EXPECT_EQ(first_byte(2), 62);
  EXPECT_EQ(first_byte(3), 63);
  EXPECT_EQ(first_byte(1), 61);
  settle();
}

TEST_P(IpcTest, StoppedExportersDelayOnlyTheirImporters) {
  if (std::string(GetParam()) == "heap" && allocator_backend() != "vmm") {
    GTEST_SKIP() << "segments are opened without a request";
  }
  const std::size_t mib = std::string(GetParam()) == "heap" ? 40 : 4;
  IpcWorker known(GetParam(), 0);
  IpcWorker unknown(GetParam(), 0);
  IpcWorker other(GetParam(), 0);
  const auto of_known = known.export_blocks(2, mib << 20, 10);
  const auto of_unknown = unknown.export_blocks(1, mib << 20, 20);
  const auto of_other = other.export_blocks(1, mib << 20, 30);
  const auto first_byte = [](const std::string& handle) {
    const Stream stream = Stream::from_pool(Device::cuda(0));
    return read(import_on(stream, from_text(handle)), stream).front();
  };
  EXPECT_EQ(first_byte(of_known[0]), 10);
  known.stop();
  unknown.stop();
  const auto later = [&](const std::string& handle) {
    return std::async(std::launch::async, first_byte, handle);
  };
  std::array waiting{later(of_known[1]), later(of_unknown[0])};
  ASSERT_TRUE(eventually([] { return IpcPeer::pending_requests() == 2; }));
  EXPECT_EQ(first_byte(of_other[0]), 30);
  EXPECT_EQ(ipc_stats().exports, 0u);
  ipc_collect();
  for (auto& one : waiting) {
    EXPECT_NE(one.wait_for(std::chrono::seconds(0)), std::future_status::ready)
        << "the exporter is stopped";
  }
  known.kill(SIGCONT);
  unknown.kill(SIGCONT);
  EXPECT_EQ(waiting[0].get(), 11);
  EXPECT_EQ(waiting[1].get(), 20);
  settle();
}

TEST_P(IpcTest, DroppingWaitsForTheStreamsButNotTheHost) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  process.release();
  const Stream user = Stream::from_pool();
  FaultDriver driver;
  std::optional<ImportedBlock> block = import_ipc(handle, Device::cuda(0));
  Stream::current().synchronize();
  block->record_stream(user);
  StreamHold hold(user);
  const Buffer host = pinned(kExportedBytes);
  driver.copy(host.data(), block->data(), kExportedBytes, user.native());
  driver.reset_counts();
  block.reset();
  EXPECT_EQ(driver.calls("synchronize_stream") + driver.calls("synchronize_device") +
                driver.calls("synchronize_event"),
            0u);
  ipc_collect();
  EXPECT_EQ(unmaps(driver), 0u) << "unmapped under queued work";
  EXPECT_EQ(ipc_stats().pending_releases, 1u);
  EXPECT_EQ(ipc_stats().imports, 0u);
  hold.release();
  settle();
  EXPECT_EQ(unmaps(driver), 1u);
  EXPECT_EQ(static_cast<std::uint8_t*>(host.data())[0], kExportedValue);
}

// Work of the current stream on an import needs no record_stream().
TEST_P(IpcTest, DroppingWaitsForTheCurrentStream) {
  ExporterProcess process(GetParam());
  process.release();
  for (const int device : {0, device_count() - 1}) {
    if (device != 0 && !can_access_peer(Device::cuda(device), Device::cuda(0))) continue;
    const Stream user = Stream::from_pool(Device::cuda(device));
    FaultDriver driver;
    std::optional<ImportedBlock> block = import_ipc(process.handle, Device::cuda(device));
    Stream::current(Device::cuda(device)).synchronize();
    StreamHold hold(user);
    {
      const StreamGuard guard(user);
      std::optional<StreamGuard> elsewhere;  // another device is current
      if (device_count() > 1) elsewhere.emplace(Stream::current(Device::cuda(device == 0 ? 1 : 0)));
      block.reset();
    }
    ipc_collect();
    EXPECT_EQ(unmaps(driver), 0u) << "unmapped under queued work of device " << device;
    EXPECT_EQ(ipc_stats(Device::cuda(device)).pending_releases, 1u);
    hold.release();
    settle();
    EXPECT_EQ(unmaps(driver), 1u);
  }
}

// The stream of the import may be destroyed after the drop, with work still queued.
TEST_P(IpcTest, ExternalStreamsMayBeDestroyedAfterTheDrop) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  process.release();
  const NativeStream native = driver().create_stream(0, 0);
  const Stream foreign = Stream::external(native.handle, Device::cuda(0));
  const Stream other = Stream::from_pool();  // made before the handle may come back
  FaultDriver driver;
  std::optional<ImportedBlock> block = import_on(foreign, handle);
  // CUDA runs the host functions of all streams one after the other. A held stream would block
  // the stream that drop() waits for.
  std::optional<StreamHold> hold;
  if (driver.platform() == Platform::simulated) hold.emplace(foreign);
  driver.fill(block->data(), 1, kExportedBytes, foreign.native());
  drop(block, other);
  driver.destroy_stream(native);
  ipc_collect();
  if (hold) {
    EXPECT_EQ(unmaps(driver), 0u) << "unmapped under queued work";
    hold->release();
  }
  settle();
  EXPECT_EQ(unmaps(driver), 1u);
}

TEST_P(IpcTest, DropsWaitForDefaultStreamsOfOtherThreads) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  process.release();
  const Stream mine = gantry::testing::per_thread_stream();
  FaultDriver driver;
  std::optional<ImportedBlock> block = import_on(mine, handle);
  mine.synchronize();
  StreamHold hold(mine);
  std::thread([&] { block.reset(); }).join();
  ipc_collect();
  EXPECT_EQ(unmaps(driver), 0u) << "unmapped under queued work";
  hold.release();
  synchronize(Device::cuda(0));
  settle();
  EXPECT_EQ(unmaps(driver), 1u);
}

// The program breaks a rule here. Where the driver reports the destroyed stream, the unmapping
// waits.
TEST_P(IpcTest, ImportsOfDestroyedStreamsWaitForTheDevice) {
  GANTRY_REQUIRE_SIM();
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  const IpcHandle& neighbour = process.neighbour;
  process.release();
  const NativeStream native = driver().create_stream(0, 0);
  const Stream foreign = Stream::external(native.handle, Device::cuda(0));
  const Stream other = Stream::from_pool();  // made before the handle may come back
  FaultDriver driver;
  std::optional<ImportedBlock> block = import_on(foreign, handle);
  StreamHold hold(foreign);
  driver.destroy_stream(native);
  drop(block, other);
  ipc_collect();
  EXPECT_EQ(unmaps(driver), 0u) << "unmapped under queued work";
  EXPECT_EQ(ipc_stats().pending_releases, 1u);
  hold.release();
  synchronize(Device::cuda(0));
  // The next drop checks for a synchronization of the device.
  block = import_ipc(neighbour, Device::cuda(0));
  block.reset();
  settle();
  EXPECT_EQ(unmaps(driver), maps(driver));
  expect_nothing_imported();
}

TEST_P(IpcTest, ForkedChildrenReleaseNothing) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  process.start_release();
  std::optional<ImportedBlock> block = import_ipc(handle, Device::cuda(0));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int failed = 1;
    try {
      static_cast<void>(import_ipc(handle, Device::cuda(0)));
    } catch (const ForkError&) {
      failed = 0;
    }
    block.reset();
    ipc_collect();
    _exit(failed);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(ipc_stats().imports, 1u);
  EXPECT_EQ(read(*block, Stream::current()),
            std::vector<std::uint8_t>(kExportedBytes, kExportedValue));
}

TEST_P(IpcTest, FailedImportsLeaveNothingBehind) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  process.release();
  int failures = 0;
  // An event is opened once per exporter, so open_event comes first.
  for (const std::string call : {"open_event", "is_capturing", "open_memory", "reserve_address",
                                 "import_chunk", "map_chunk", "set_access"}) {
    FaultDriver driver;
    driver.fail_on(call, 1);
    bool has_failed = false;
    try {
      static_cast<void>(import_ipc(handle, Device::cuda(0)));
      EXPECT_EQ(driver.calls(call), 0u) << call;
    } catch (const CudaError&) {
      has_failed = true;
      ++failures;
    }
    driver.fail_nothing();
    settle();
    const bool was_map = has_failed && (call == "open_memory" || call == "reserve_address");
    const bool was_chunk = has_failed && call == "import_chunk";
    EXPECT_EQ(unmaps(driver), maps(driver) - was_map) << call;
    EXPECT_EQ(driver.calls("release_chunk"), driver.calls("import_chunk") - was_chunk) << call;
    expect_nothing_imported();
  }
  EXPECT_GE(failures, 3);
  const ImportedBlock block = import_ipc(handle, Device::cuda(0));
  EXPECT_EQ(read(block, Stream::current()),
            std::vector<std::uint8_t>(kExportedBytes, kExportedValue));
}

}  // namespace
}  // namespace gantry::memory
