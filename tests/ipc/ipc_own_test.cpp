// Exports that are imported in their own process, and exports that cannot be made or opened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gantry/device/peer.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "ipc/events.hpp"
#include "ipc/handle.hpp"
#include "tests/ipc/vmm_source.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::eventually;
using gantry::testing::FaultDriver;
using gantry::testing::kMib;
using gantry::testing::StreamHold;
using gantry::testing::VmmSource;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class IpcOwnTest : public gantry::testing::HeapTest {
 protected:
  // Changes the fields of a handle.
  template <class Change>
  static IpcHandle changed(const IpcHandle& handle, Change&& change) {
    IpcHandleFields fields = decode(handle);
    change(fields);
    return encode(fields);
  }
  template <class E>
  static void expect_refused(const IpcHandle& handle, const char* text) {
    EXPECT_THAT([&] { static_cast<void>(import_ipc(handle, Device::cuda(0))); },
                ThrowsMessage<E>(HasSubstr(text)));
  }
};

TEST_F(IpcOwnTest, GetsTheOriginal) {
  const Stream stream = Stream::from_pool();
  const StreamGuard guard(stream);
  const Buffer before = allocate(stream, 1000);
  const Buffer buffer = allocate(stream, 1000);
  StreamHold hold(stream);
  const IpcHandle handle = export_ipc(buffer.block());
  const Stream user = Stream::from_pool();
  {
    const StreamGuard user_guard(user);
    const ImportedBlock block = import_ipc(handle, Device::cuda(0));
    EXPECT_EQ(block.data(), buffer.data());
    EXPECT_EQ(block.bytes(), 1000u);
    EXPECT_EQ(ipc_stats().imports, 1u);
  }
  EXPECT_EQ(ipc_stats().imports, 0u);
  EXPECT_FALSE(user.query()) << "the import must wait for the export";
  hold.release();
  user.synchronize();
}

TEST_F(IpcOwnTest, OtherDevicesSeeTheWorkBeforeTheExport) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!can_access_peer(Device::cuda(1), Device::cuda(0))) GTEST_SKIP() << "needs peer access";
  const Stream stream = Stream::from_pool(Device::cuda(0));
  const Stream user = Stream::from_pool(Device::cuda(1));
  const StreamGuard guard(stream);
  const StreamGuard user_guard(user);
  const Buffer buffer = allocate(stream, 1000);
  StreamHold hold(stream);
  const ImportedBlock block = import_ipc(export_ipc(buffer.block()), Device::cuda(1));
  EXPECT_EQ(block.data(), buffer.data());
  EXPECT_FALSE(user.query()) << "the import must wait for the export";
  hold.release();
  user.synchronize();
}

TEST_F(IpcOwnTest, OtherDevicesReachTheMemory) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!can_access_peer(Device::cuda(1), Device::cuda(0))) GTEST_SKIP() << "needs peer access";
  const Buffer buffer = allocate(Stream::current(Device::cuda(0)), 8 * kMib);
  const ImportedBlock block = import_ipc(export_ipc(buffer.block()), Device::cuda(1));
  const Stream user = Stream::current(Device::cuda(1));
  std::vector<std::uint8_t> bytes(8 * kMib);
  driver().fill(block.data(), 9, block.bytes(), user.native());
  driver().copy(bytes.data(), block.data(), block.bytes(), user.native());
  user.synchronize();
  EXPECT_EQ(bytes, std::vector<std::uint8_t>(8 * kMib, 9));
}

TEST_F(IpcOwnTest, CapturedStreamsExportNothing) {
  const Stream stream = Stream::from_pool();
  const StreamGuard guard(stream);
  const Buffer buffer = allocate(stream, 1000);
  driver().begin_capture(stream.native(), CaptureMode::relaxed);
  EXPECT_THAT(
      [&] { static_cast<void>(export_ipc(buffer.block())); },
      ThrowsMessage<CaptureError>(HasSubstr("a current stream that is not being captured")));
  EXPECT_EQ(ipc_stats().exports, 0u);
  driver().destroy_graph(driver().end_capture(stream.native()));
}

TEST_F(IpcOwnTest, FreedMemoryCannotBeImported) {
  Buffer buffer = allocate(Stream::current(), 1000);
  const IpcHandle handle = export_ipc(buffer.block());
  EXPECT_EQ(ipc_stats().exports, 1u);
  buffer.reset();
  EXPECT_EQ(ipc_stats().exports, 0u) << "an export that nobody imported leaks";
  expect_refused<InvalidArgument>(handle, "but got a freed one");
  // The next block in the same place is not mistaken for it.
  const Buffer next = allocate(Stream::current(), 1000);
  const IpcHandle other = export_ipc(next.block());
  expect_refused<InvalidArgument>(handle, "but got a freed one");
  EXPECT_EQ(import_ipc(other, Device::cuda(0)).data(), next.data());
}

TEST_F(IpcOwnTest, ImportsKeepFreedMemoryInLimbo) {
  Buffer buffer = allocate(Stream::current(), 1000);
  void* data = buffer.data();
  const IpcHandle handle = export_ipc(buffer.block());
  {
    const ImportedBlock first = import_ipc(handle, Device::cuda(0));
    buffer.reset();
    IpcStats stats = ipc_stats();
    EXPECT_EQ(stats.limbo_blocks, 1u);
    EXPECT_EQ(stats.limbo_bytes, 1000u);
    EXPECT_EQ(stats.limbo_by_consumer.size(), 1u);
    const Buffer other = allocate(Stream::current(), 1000);
    EXPECT_NE(other.data(), data) << "reused while it is imported";
    const ImportedBlock second = import_ipc(handle, Device::cuda(0));
    EXPECT_EQ(second.data(), data) << "a block in limbo can be imported";
  }
  EXPECT_EQ(ipc_stats().limbo_bytes, 0u);
  EXPECT_EQ(ipc_stats().exports, 0u);
  EXPECT_EQ(allocated(), 0u);
  expect_refused<InvalidArgument>(handle, "but got a freed one");
}

TEST_F(IpcOwnTest, ChunksOfExportsArePinned) {
  VmmSource source(0, 2);
  Block block = source.allocate(Stream::current(), 3 << 20);
  const IpcHandle handle = export_ipc(block);
  EXPECT_EQ(decode(handle).kind, IpcKind::chunks);
  EXPECT_EQ(decode(handle).extent_bytes, 2 * source.chunk_bytes());
  EXPECT_EQ(decode(export_ipc(block)).slot, decode(handle).slot) << "one slot per block";
  EXPECT_EQ(source.pins(), 1);
  source.deallocate(block);
  EXPECT_EQ(source.pins(), 0);
  EXPECT_EQ(source.live_bytes(), 0u);
}

TEST_F(IpcOwnTest, EmptyBlocksCanBeImported) {
  const Buffer buffer = allocate(Stream::current(), 0);
  const ImportedBlock block = import_ipc(export_ipc(buffer.block()), Device::cuda(0));
  EXPECT_EQ(block.data(), nullptr);
  EXPECT_EQ(block.bytes(), 0u);
}

TEST_F(IpcOwnTest, TheDeviceDefaultsToTheOwner) {
  const Device owner = Device::cuda(device_count() - 1);
  const Buffer buffer = allocate(Stream::current(owner), 1000);
  const ImportedBlock block = import_ipc(export_ipc(buffer.block()));
  EXPECT_EQ(block.device(), owner);
  EXPECT_EQ(block.data(), buffer.data());
  const Block empty{.device = owner};
  EXPECT_EQ(import_ipc(export_ipc(empty)).device(), owner);
}

TEST_F(IpcOwnTest, ExportsOnlyBlocksOfTheCachingAllocator) {
  const Buffer host = pinned(1000);
  EXPECT_THAT([&] { static_cast<void>(export_ipc(host.block())); },
              ThrowsMessage<NotSupported>("export_ipc: expected a block of the caching "
                                          "allocator, but got one of pinned on cpu"));
  Block block = allocate(Stream::current(), 1 << 20).release();
  Block copy = block;
  block.allocator->deallocate(block);
  EXPECT_THAT(
      [&] { static_cast<void>(export_ipc(copy)); },
      ThrowsMessage<InvalidArgument>("export_ipc: expected a live block, but got a freed one"));
}

TEST_F(IpcOwnTest, ExportsOfAnIdleStreamNeedNoEvent) {
  const Buffer buffer = allocate(Stream::current(), 1000);
  Stream::current().synchronize();
  EXPECT_FALSE(decode(export_ipc(buffer.block())).event.has_value());
}

TEST_F(IpcOwnTest, EventsAreReusedAndTheHostNeverWaits) {
  const Stream stream = Stream::from_pool();
  FaultDriver driver;
  for (std::size_t i = 0; i < 3 * IpcEvents::kEventsPerStream; ++i) {
    StreamHold hold(stream);
    ASSERT_TRUE(IpcEvents::of(0).record(stream.native()).has_value());
    hold.release();
    stream.synchronize();
  }
  EXPECT_LE(driver.calls("create_event"), 2 * IpcEvents::kEventsPerStream);  // one of each is local
  driver.reset_counts();
  StreamHold hold(stream);  // no event below completes
  for (std::size_t i = 0; i < 2 * IpcEvents::kEventsPerStream; ++i) {
    ASSERT_TRUE(IpcEvents::of(0).record(stream.native()).has_value());
  }
  EXPECT_EQ(driver.calls("synchronize_event"), 0u);
  hold.release();
  stream.synchronize();
}

TEST_F(IpcOwnTest, ExportsWorkWithoutNewEvents) {
  const Stream stream = Stream::from_pool();
  FaultDriver driver;
  driver.fail_on("create_event", 1, gantry::testing::kOutOfMemory, 3);
  {
    StreamHold hold(stream);
    std::thread later([&] {
      EXPECT_TRUE(eventually([&] { return driver.calls("synchronize_stream") == 1; }));
      hold.release();
    });
    EXPECT_FALSE(IpcEvents::of(0).record(stream.native()).has_value()) << "the host has waited";
    later.join();
    EXPECT_TRUE(stream.query());
  }
  driver.fail_nothing();
  StreamHold hold(stream);
  const auto first = IpcEvents::of(0).record(stream.native());
  ASSERT_TRUE(first.has_value());
  driver.fail_on("create_event", 1, gantry::testing::kOutOfMemory);
  const auto second = IpcEvents::of(0).record(stream.native());
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(first->bytes, second->bytes) << "its newest event again";
  hold.release();
  stream.synchronize();
}

// The default streams of all threads share one handle.
TEST_F(IpcOwnTest, DefaultStreamsOfThreadsHaveEventsOfTheirOwn) {
  const auto record = [] {
    return IpcEvents::of(0).record(gantry::testing::per_thread_stream().native());
  };
  FaultDriver driver;
  StreamHold hold(gantry::testing::per_thread_stream());
  const auto own = record();
  ASSERT_TRUE(own.has_value());
  std::optional<NativeEventHandle> other;
  std::thread([&] {
    const StreamHold others_hold(gantry::testing::per_thread_stream());
    other = record();
  }).join();
  ASSERT_TRUE(other.has_value());
  driver.fail_on("create_event", 1, gantry::testing::kOutOfMemory);
  const auto again = record();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->bytes, own->bytes) << "recorded another thread's event anew";
  hold.release();
  synchronize(Device::cuda(0));
}

TEST_F(IpcOwnTest, ObstaclesBetweenProcessesAreNamed) {
  const Buffer buffer = allocate(Stream::current(), 1000);
  const IpcHandle handle = export_ipc(buffer.block());
  expect_refused<NotSupported>(
      changed(handle, [](IpcHandleFields& fields) { ++fields.exporter.machine; }),
      "expected an exporter on this machine");
  expect_refused<NotSupported>(
      changed(handle, [](IpcHandleFields& fields) { ++fields.exporter.pid_namespace; }),
      "expected an exporter in pid namespace");
  expect_refused<NotSupported>(
      changed(handle, [](IpcHandleFields& fields) { ++fields.exporter.net_namespace; }),
      "docker run --network=host");
  expect_refused<NotSupported>(
      changed(handle, [](IpcHandleFields& fields) { ++fields.exporter.user; }),
      "start both as one user");
  expect_refused<PeerLostError>(
      changed(handle, [](IpcHandleFields& fields) { ++fields.exporter.process.start_time; }),
      "has ended");
}

TEST_F(IpcOwnTest, DevicesThatCannotBeSharedAreNamed) {
  const Buffer buffer = allocate(Stream::current(), 1000);
  const IpcHandle handle = export_ipc(buffer.block());
  const std::string first = device_properties(Device::cuda(0)).uuid;
  expect_refused<NotSupported>(
      changed(handle, [](IpcHandleFields& fields) { fields.device_uuid = "MIG-1-2-3"; }),
      "expected memory of a whole GPU, but got memory of the MIG instance MIG-1-2-3");
  expect_refused<NotSupported>(
      changed(handle, [](IpcHandleFields& fields) { fields.device_uuid = "GPU-masked"; }),
      ("expected one of the visible devices " + first).c_str());
}

}  // namespace
}  // namespace gantry::memory
