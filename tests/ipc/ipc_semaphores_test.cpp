// How an importer's streams wait for the exporter's work, also if it never completes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gantry/device/peer.hpp>

#include "device/idle_stream.hpp"
#include "tests/ipc/exporter_fixture.hpp"
#include "tests/ipc/ipc_text.hpp"
#include "tests/ipc/ipc_worker_process.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/expect_error.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::eventually;
using gantry::testing::ExporterProcess;
using gantry::testing::FaultDriver;
using gantry::testing::IpcWorker;
using gantry::testing::kExportedBytes;
using gantry::testing::kExportedValue;
using gantry::testing::message_of;
using gantry::testing::PipeProcess;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAreArray;

const std::vector<std::uint8_t>& exported_content() {
  static const std::vector<std::uint8_t> kContent(kExportedBytes, kExportedValue);
  return kContent;
}

// The exporter's stream is held until the command "release".
class IpcSemaphoresTest : public gantry::testing::ExporterTest {
 protected:
  static void kill(PipeProcess& process) {
    process.kill(SIGKILL);
    EXPECT_EQ(process.wait(), -SIGKILL);
  }
  static std::string fault_text(int pid) {
    return "import_ipc: exporter process " + std::to_string(pid) +
           " died before its pending writes completed; contents are undefined";
  }
  static std::optional<Device> peer_of_first() {
    if (device_count() < 2 || !can_access_peer(Device::cuda(1), Device::cuda(0))) return {};
    return Device::cuda(1);
  }
};

INSTANTIATE_TEST_SUITE_P(Memory, IpcSemaphoresTest, ::testing::Values("heap", "chunks"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(IpcSemaphoresTest, KilledExporterIsAFaultAndNoHang) {
  ExporterProcess process(GetParam());
  const int pid = process.pid();
  const IpcHandle& handle = process.handle;
  const Stream stream = Stream::from_pool();
  const Buffer host = pinned(kExportedBytes);
  const ImportedBlock block = import_on(stream, handle);
  driver().copy(host.data(), block.data(), kExportedBytes, stream.native());
  EXPECT_FALSE(stream.query());
  kill(process);
  EXPECT_THAT([&] { stream.synchronize(); }, ThrowsMessage<PeerLostError>(fault_text(pid)));
  EXPECT_NO_THROW(stream.synchronize()) << "raised once";
  EXPECT_NO_THROW(synchronize(Device::cuda(0)));
  driver().fill(block.data(), 5, kExportedBytes, stream.native());
  EXPECT_EQ(read(block, stream), std::vector<std::uint8_t>(kExportedBytes, 5))
      << "the memory stays valid";
}

TEST_P(IpcSemaphoresTest, OneFaultForAllImportsOfADevice) {
  ExporterProcess process(GetParam());
  const int pid = process.pid();
  const IpcHandle& handle = process.handle;
  const IpcHandle& neighbour = process.neighbour;
  const std::vector<Stream> streams{Stream::from_pool(), Stream::from_pool()};
  std::vector<ImportedBlock> blocks;
  for (const Stream& stream : streams) {
    blocks.push_back(import_on(stream, handle));
    blocks.push_back(import_on(stream, neighbour));
    blocks.push_back(import_on(stream, handle));
  }
  const std::optional<Device> peer = peer_of_first();
  if (peer) blocks.push_back(import_ipc(handle, *peer));
  for (const Stream& stream : streams) EXPECT_FALSE(stream.query());
  kill(process);
  EXPECT_THAT([] { synchronize(Device::cuda(0)); }, ThrowsMessage<PeerLostError>(fault_text(pid)));
  for (const Stream& stream : streams) EXPECT_NO_THROW(stream.synchronize());
  EXPECT_NO_THROW(synchronize(Device::cuda(0)));
  if (!peer) return;
  try {
    synchronize(*peer);
    ADD_FAILURE() << "no fault on the other device";
  } catch (const PeerLostError& error) {
    EXPECT_EQ(error.device(), peer->str());
    EXPECT_EQ(error.what(), fault_text(pid));
  }
  EXPECT_NO_THROW(synchronize(*peer));
}

TEST_P(IpcSemaphoresTest, EveryLostExporterIsRaised) {
  ExporterProcess first(GetParam());
  ExporterProcess second(GetParam());
  const int pids[] = {first.pid(), second.pid()};
  const Stream streams[] = {Stream::from_pool(), Stream::from_pool()};
  const ImportedBlock blocks[] = {import_on(streams[0], first.handle),
                                  import_on(streams[1], second.handle)};
  kill(first);
  EXPECT_THAT([&] { streams[0].synchronize(); }, ThrowsMessage<PeerLostError>(fault_text(pids[0])));
  EXPECT_FALSE(streams[1].query()) << "its exporter still runs";
  kill(second);
  EXPECT_THAT([&] { streams[1].synchronize(); }, ThrowsMessage<PeerLostError>(fault_text(pids[1])));
}

TEST_P(IpcSemaphoresTest, LostExportersAreRaisedOneAfterTheOther) {
  std::vector<std::unique_ptr<ExporterProcess>> exporters;
  std::vector<Stream> streams;
  std::vector<ImportedBlock> blocks;
  std::vector<std::string> expected;
  for (int i = 0; i < 3; ++i) {
    exporters.push_back(std::make_unique<ExporterProcess>(GetParam()));
    streams.push_back(Stream::from_pool());
    blocks.push_back(import_on(streams.back(), exporters.back()->handle));
    expected.push_back(fault_text(exporters.back()->pid()));
  }
  for (const auto& exporter : exporters) kill(*exporter);
  // Without a look at errors: every loss is noted before the first one is raised.
  for (const Stream& stream : streams) {
    EXPECT_TRUE(eventually([&] { return is_idle(stream.native()); }));
  }
  std::vector<std::string> raised;
  for (std::size_t i = 0; i < exporters.size(); ++i) {
    raised.push_back(message_of<PeerLostError>([] { synchronize(Device::cuda(0)); }));
  }
  EXPECT_THAT(raised, UnorderedElementsAreArray(expected));
  EXPECT_NO_THROW(synchronize(Device::cuda(0)));
}

TEST_P(IpcSemaphoresTest, EveryStreamWaitsForTheExporter) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  std::vector<Stream> streams{Stream::from_pool(), Stream::from_pool(), Stream::current()};
  if (const auto peer = peer_of_first()) streams.push_back(Stream::from_pool(*peer));
  // Allocated first: CUDA may wait for the device when it locks pages.
  std::vector<Buffer> hosts;
  for (std::size_t i = 0; i < streams.size(); ++i) hosts.push_back(pinned(kExportedBytes));
  FaultDriver driver;
  std::vector<ImportedBlock> blocks;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    blocks.push_back(import_on(streams[i], handle));
    driver.copy(hosts[i].data(), blocks[i].data(), kExportedBytes, streams[i].native());
  }
  EXPECT_EQ(driver.calls("wait_event"), 0u) << "a stream that waits for that event may hang";
  EXPECT_EQ(driver.calls("wait_for_word"), streams.size());
  for (const Stream& stream : streams) EXPECT_FALSE(stream.query());
  process.start_release();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    streams[i].synchronize();
    const auto* bytes = static_cast<const std::uint8_t*>(hosts[i].data());
    EXPECT_EQ(std::vector<std::uint8_t>(bytes, bytes + kExportedBytes), exported_content()) << i;
  }
  blocks.clear();
  settle();  // before the driver goes
}

TEST_P(IpcSemaphoresTest, FinishedWorkIsNotWaitedFor) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  process.release();
  FaultDriver driver;
  {
    const ImportedBlock block = import_ipc(handle, Device::cuda(0));
    EXPECT_EQ(driver.calls("wait_event") + driver.calls("wait_for_word"), 0u);
    EXPECT_EQ(driver.calls("event_reached"), 1u);
    EXPECT_EQ(read(block, Stream::current()), exported_content());
  }
  settle();
}

// Host calls that wait for the whole device must not block the thread that signals.
TEST_P(IpcSemaphoresTest, SemaphoresAreSignalledWhileTheHostWaitsForTheDevice) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  void* const unrelated = driver().allocate(0, 1 << 20);
  const Stream stream = Stream::from_pool();
  std::optional<ImportedBlock> block = import_on(stream, handle);
  process.start_release();
  driver().deallocate(0, unrelated);
  synchronize(Device::cuda(0));
  process.await_release();
  EXPECT_EQ(read(*block, stream), exported_content());
}

// With the backend "native", CUDA unmaps only after all streams of the device: see
// Note [Releasing imports without waiting].
TEST_P(IpcSemaphoresTest, SemaphoresAreSignalledWhileAReleaseUnmaps) {
  ExporterProcess pending_exporter(GetParam());
  ExporterProcess done_exporter(GetParam());
  const IpcHandle& pending = pending_exporter.handle;
  const IpcHandle& done = done_exporter.handle;
  done_exporter.release();
  const Stream waiting = Stream::from_pool();
  const Stream idle = Stream::from_pool();
  const ImportedBlock block = import_on(waiting, pending);
  std::optional<ImportedBlock> dropped = import_on(idle, done);
  EXPECT_FALSE(waiting.query());
  drop(dropped, idle);
  pending_exporter.start_release();
  EXPECT_EQ(read(block, waiting), exported_content());
}

TEST_P(IpcSemaphoresTest, ExportersThatEndLaterAreNoFault) {
  ExporterProcess process(GetParam());
  const Stream stream = Stream::from_pool();
  const ImportedBlock block = import_on(stream, process.handle);
  EXPECT_FALSE(stream.query());
  process.release();
  // The simulator guarantees that a completed record outlives its process. CUDA does not.
  if (platform() == Platform::cuda) stream.synchronize();
  kill(process);
  EXPECT_NO_THROW(synchronize(Device::cuda(0)));
  EXPECT_EQ(read(block, stream), exported_content());
}

TEST_P(IpcSemaphoresTest, ImportsMayBeDroppedBeforeTheExportCompletes) {
  ExporterProcess process(GetParam());
  const int pid = process.pid();
  const IpcHandle& handle = process.handle;
  const Stream stream = Stream::from_pool();
  {
    const StreamGuard guard(stream);
    static_cast<void>(import_ipc(handle, Device::cuda(0)));
  }
  ipc_collect();
  EXPECT_EQ(ipc_stats().pending_releases, 1u) << "the stream has not reached the release yet";
  kill(process);
  EXPECT_THAT([] { synchronize(Device::cuda(0)); }, ThrowsMessage<PeerLostError>(fault_text(pid)));
  ipc_collect();
  expect_nothing_imported();
}

TEST_P(IpcSemaphoresTest, FailedWaitsLeaveNothingBehind) {
  ExporterProcess process(GetParam());
  const IpcHandle& handle = process.handle;
  const IpcHandle& neighbour = process.neighbour;
  const Stream stream = Stream::from_pool();
  {
    FaultDriver driver;
    for (const std::string call : {"is_capturing", "wait_for_word"}) {
      driver.fail_on(call, 1);
      EXPECT_THROW(static_cast<void>(import_on(stream, handle)), CudaError) << call;
      driver.fail_nothing();
      settle();
      expect_nothing_imported();
    }
    EXPECT_TRUE(stream.query()) << "the stream waits for a failed import";
  }
  // The semaphore of the failed wait is used again.
  const ImportedBlock block = import_on(stream, handle);
  const ImportedBlock other = import_on(stream, neighbour);
  EXPECT_FALSE(stream.query());
  process.start_release();
  EXPECT_EQ(read(block, stream), exported_content());
}

TEST_P(IpcSemaphoresTest, CapturedStreamsDoNotWaitForExporters) {
  ExporterProcess process(GetParam());
  const IpcHandle& pending = process.handle;
  const Stream stream = Stream::from_pool();
  if (platform() == Platform::simulated) {
    driver().begin_capture(stream.native(), CaptureMode::relaxed);
    EXPECT_THROW(static_cast<void>(import_on(stream, pending)), CudaError);
    EXPECT_THROW(static_cast<void>(driver().end_capture(stream.native())), CudaError);
  }
  process.release();
  const IpcHandle done = process.export_again();
  driver().begin_capture(stream.native(), CaptureMode::relaxed);
  const ImportedBlock block = import_on(stream, done);
  driver().fill(block.data(), 9, kExportedBytes, stream.native());
  const NativeGraph graph = driver().end_capture(stream.native());
  EXPECT_EQ(read(block, stream), exported_content());
  driver().launch_graph(graph, stream.native());
  EXPECT_EQ(read(block, stream), std::vector<std::uint8_t>(kExportedBytes, 9));
  driver().destroy_graph(graph);
}

TEST_P(IpcSemaphoresTest, ImportersMayExitBeforeTheExportCompletes) {
  ExporterProcess process(GetParam());
  const std::string handle = gantry::testing::to_text(process.handle);
  IpcWorker importer("heap", 0);
  EXPECT_EQ(importer.map_blocks({handle}).status, "ok");
  importer.write_line("exit");
  EXPECT_EQ(importer.wait(), 0);
  process.release();
}

}  // namespace
}  // namespace gantry::memory
