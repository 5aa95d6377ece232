#include <gantry/memory/ipc.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gantry/device/peer.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "memory/ipc_events.hpp"
#include "memory/ipc_message.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/memory/ipc_text.hpp"
#include "tests/support/pipe_process.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::from_text;
using gantry::testing::kMib;
using gantry::testing::PipeProcess;
using gantry::testing::StreamHold;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::size_t kExportedBytes = 100000;
constexpr std::uint8_t kExportedValue = 77;

class IpcTest : public gantry::testing::HeapTest {
 protected:
  static std::string exporter() {
    return std::string(GANTRY_TEST_PROGRAM_DIR) + "/memory_exporter";
  }
  // Reads through page-locked memory, so that the host does not wait for the stream.
  static std::vector<std::uint8_t> read(const ImportedBlock& block, const Stream& stream) {
    const Buffer host = pinned(block.bytes());
    driver().copy(host.data(), block.data(), block.bytes(), stream.native());
    stream.synchronize();
    const auto* bytes = static_cast<const std::uint8_t*>(host.data());
    return {bytes, bytes + block.bytes()};
  }
};

TEST_F(IpcTest, ImporterSeesTheWorkBeforeTheExport) {
  PipeProcess process({exporter()});
  const IpcHandle handle = from_text(process.read_line());
  const Stream stream = Stream::current();
  const ImportedBlock block = import_ipc(handle, Device::cuda(0));
  EXPECT_EQ(block.bytes(), kExportedBytes);
  EXPECT_EQ(block.device(), Device::cuda(0));
  ASSERT_NE(block.data(), nullptr);
  EXPECT_FALSE(stream.query()) << "the import does not wait for the exporter's stream";
  process.write_line("release");
  EXPECT_EQ(read(block, stream), std::vector<std::uint8_t>(kExportedBytes, kExportedValue));
}

TEST_F(IpcTest, ExporterSeesWhatTheImporterWrites) {
  PipeProcess process({exporter()});
  const IpcHandle handle = from_text(process.read_line());
  static_cast<void>(process.read_line());
  const ImportedBlock block = import_ipc(handle, Device::cuda(0));
  process.write_line("release");
  EXPECT_EQ(process.read_line(), "released");
  const Stream stream = Stream::current();
  driver().fill(block.data(), 5, block.bytes(), stream.native());
  stream.synchronize();
  process.write_line("check");
  EXPECT_EQ(process.read_line(), "5");
  process.write_line("quit");
  EXPECT_EQ(process.wait(), 0);
}

TEST_F(IpcTest, MapsASegmentOnceForAllItsBlocks) {
  PipeProcess process({exporter()});
  const IpcHandle handle = from_text(process.read_line());
  const IpcHandle neighbour = from_text(process.read_line());
  process.write_line("release");
  EXPECT_EQ(process.read_line(), "released");
  FaultDriver driver;
  {
    std::optional<ImportedBlock> first = import_ipc(handle, Device::cuda(0));
    const ImportedBlock again = import_ipc(handle, Device::cuda(0));
    const ImportedBlock other = import_ipc(neighbour, Device::cuda(0));
    EXPECT_EQ(first->data(), again.data());
    EXPECT_NE(first->data(), other.data());
    EXPECT_EQ(driver.calls("open_memory"), 1u);
    first.reset();
    EXPECT_EQ(driver.calls("close_memory"), 0u);
  }
  EXPECT_EQ(driver.calls("close_memory"), 1u) << "the mapping outlived its last block";
  EXPECT_EQ(driver.calls("open_event"), driver.calls("destroy_event"));
  const ImportedBlock anew = import_ipc(handle, Device::cuda(0));
  EXPECT_EQ(driver.calls("open_memory"), 2u);
}

TEST_F(IpcTest, ImportsOntoAPeer) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!can_access_peer(Device::cuda(1), Device::cuda(0))) GTEST_SKIP() << "needs peer access";
  PipeProcess process({exporter()});
  const IpcHandle handle = from_text(process.read_line());
  const ImportedBlock block = import_ipc(handle, Device::cuda(1));
  EXPECT_EQ(block.device(), Device::cuda(1));
  process.write_line("release");
  EXPECT_EQ(read(block, Stream::current(Device::cuda(1))),
            std::vector<std::uint8_t>(kExportedBytes, kExportedValue));
}

TEST_F(IpcTest, DeadExporterIsAnError) {
  PipeProcess process({exporter()});
  const IpcHandle handle = from_text(process.read_line());
  const int pid = process.pid();
  process.kill(SIGKILL);
  EXPECT_EQ(process.wait(), -SIGKILL);
  EXPECT_THAT([&] { static_cast<void>(import_ipc(handle, Device::cuda(0))); },
              ThrowsMessage<PeerLostError>("import_ipc: process " + std::to_string(pid) +
                                           ", which exported the memory, is gone"));
}

TEST_F(IpcTest, FailedImportsLeaveNothingBehind) {
  PipeProcess process({exporter()});
  const IpcHandle handle = from_text(process.read_line());
  for (const char* call : {"open_memory", "open_event", "wait_event"}) {
    FaultDriver driver;
    driver.fail_on(call, 1);
    EXPECT_THROW(static_cast<void>(import_ipc(handle, Device::cuda(0))), CudaError) << call;
    EXPECT_EQ(driver.calls("destroy_event"),
              driver.calls("open_event") - (std::string(call) == "open_event"))
        << call;
    EXPECT_EQ(driver.calls("close_memory"),
              driver.calls("open_memory") - (std::string(call) == "open_memory"))
        << call;
  }
  process.write_line("release");
  const ImportedBlock block = import_ipc(handle, Device::cuda(0));
  EXPECT_EQ(read(block, Stream::current()),
            std::vector<std::uint8_t>(kExportedBytes, kExportedValue));
}

TEST_F(IpcTest, SameProcessGetsTheOriginal) {
  const Stream stream = Stream::from_pool();
  const StreamGuard guard(stream);
  const Buffer before = allocate(1000, stream);
  const Buffer buffer = allocate(1000, stream);
  StreamHold hold(stream);
  const IpcHandle handle = export_ipc(buffer.block());
  const Stream user = Stream::from_pool();
  {
    const StreamGuard user_guard(user);
    const ImportedBlock block = import_ipc(handle, Device::cuda(0));
    EXPECT_EQ(block.data(), buffer.data());
    EXPECT_EQ(block.bytes(), 1000u);
  }
  EXPECT_FALSE(user.query()) << "the import does not wait for the export";
  hold.release();
  user.synchronize();
}

TEST_F(IpcTest, SameProcessMustStillHoldTheMemory) {
  Buffer buffer = allocate(1000, Stream::current());
  const IpcHandle handle = export_ipc(buffer.block());
  buffer.reset();
  empty_cache();
  EXPECT_THAT([&] { static_cast<void>(import_ipc(handle, Device::cuda(0))); },
              ThrowsMessage<InvalidArgument>(HasSubstr("memory that was given back")));
}

TEST_F(IpcTest, EmptyBlocksTravelToo) {
  const Buffer buffer = allocate(0, Stream::current());
  const ImportedBlock block = import_ipc(export_ipc(buffer.block()), Device::cuda(0));
  EXPECT_EQ(block.data(), nullptr);
  EXPECT_EQ(block.bytes(), 0u);
}

TEST_F(IpcTest, ExportsOnlyBlocksOfTheCachingAllocator) {
  const Buffer host = pinned(1000);
  EXPECT_THAT([&] { static_cast<void>(export_ipc(host.block())); },
              ThrowsMessage<NotSupported>("export_ipc: a block of the caching allocator was "
                                          "expected, but got one of pinned on cpu"));
  Block block = allocate(1000, Stream::current()).release();
  Block copy = block;
  block.allocator->deallocate(block);
  EXPECT_THAT([&] { static_cast<void>(export_ipc(copy)); },
              ThrowsMessage<InvalidArgument>(
                  "export_ipc: a live block was expected, but got one that was freed"));
}

TEST_F(IpcTest, ExportsOfAnIdleStreamNeedNoEvent) {
  const Buffer buffer = allocate(1000, Stream::current());
  Stream::current().synchronize();
  EXPECT_FALSE(decode(export_ipc(buffer.block())).event.has_value());
}

TEST_F(IpcTest, EventsAreUsedAgainAfterAWhile) {
  const Stream stream = Stream::from_pool();
  FaultDriver driver;
  for (std::size_t i = 0; i < 2 * IpcEvents::kCapacity; ++i) {
    StreamHold hold(stream);
    ASSERT_TRUE(IpcEvents::of(0).mark(stream.native()).has_value());
    hold.release();
    stream.synchronize();
  }
  EXPECT_LE(driver.calls("create_event"), IpcEvents::kCapacity);
}

TEST(IpcMessageTest, SurvivesTheJourney) {
  IpcMessage message;
  message.exporter = {4711, 0x123456789abcdef0u};
  message.device_uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef";
  message.segment.bytes.fill(std::byte{7});
  message.offset = 0x1122334455667788u;
  message.bytes = 99;
  message.event.emplace().bytes.fill(std::byte{9});
  const IpcHandle handle = encode(message);
  EXPECT_EQ(handle.bytes[0], std::byte{'G'});
  EXPECT_EQ(handle.bytes[4], std::byte{1}) << "little-endian version";
  const IpcMessage read = decode(handle);
  EXPECT_EQ(read.exporter, message.exporter);
  EXPECT_EQ(read.device_uuid, message.device_uuid);
  EXPECT_EQ(read.segment.bytes, message.segment.bytes);
  EXPECT_EQ(read.offset, message.offset);
  EXPECT_EQ(read.bytes, message.bytes);
  ASSERT_TRUE(read.event.has_value());
  EXPECT_EQ(read.event->bytes, message.event->bytes);
  message.event.reset();
  EXPECT_FALSE(decode(encode(message)).event.has_value());
}

TEST(IpcMessageTest, RefusesEverythingElse) {
  const auto expect_refused = [](const IpcHandle& handle, const char* why) {
    EXPECT_THAT(
        [&] { static_cast<void>(decode(handle)); },
        ThrowsMessage<InvalidArgument>(HasSubstr(
            std::string("import_ipc: the bytes of an IpcHandle were expected, but got ") + why)));
  };
  const IpcHandle good = encode({});
  expect_refused({}, "0 bytes instead of");
  IpcHandle bad = good;
  bad.bytes.pop_back();
  expect_refused(bad, "");
  bad = good;
  bad.bytes[0] = std::byte{'X'};
  expect_refused(bad, "bytes without its magic");
  bad = good;
  bad.bytes[4] = std::byte{2};
  expect_refused(bad, "version 2 instead of 1");
  for (std::size_t i = 8; i < good.bytes.size(); ++i) {
    bad = good;
    bad.bytes[i] ^= std::byte{64};
    expect_refused(bad, "damaged ones");
  }
  IpcMessage overflow;
  overflow.offset = ~std::uint64_t{0};
  overflow.bytes = 1;
  expect_refused(encode(overflow), "fields out of range");
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    IpcHandle noise;
    noise.bytes.resize(random() % 400);
    for (std::byte& byte : noise.bytes) byte = static_cast<std::byte>(random());
    expect_refused(noise, "");
  }
}

}  // namespace
}  // namespace gantry::memory
