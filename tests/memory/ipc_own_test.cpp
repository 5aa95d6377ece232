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
#include <gantry/memory/ipc.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "memory/ipc/events.hpp"
#include "memory/ipc/message.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/memory/vmm_source.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::kMib;
using gantry::testing::StreamHold;
using gantry::testing::VmmSource;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class IpcOwnTest : public gantry::testing::HeapTest {
 protected:
  // The handle with its content changed.
  template <class Change>
  static IpcHandle changed(const IpcHandle& handle, Change&& change) {
    IpcMessage message = decode(handle);
    change(message);
    return encode(message);
  }
  template <class E>
  static void expect_refused(const IpcHandle& handle, const char* why) {
    EXPECT_THAT([&] { static_cast<void>(import_ipc(handle, Device::cuda(0))); },
                ThrowsMessage<E>(HasSubstr(why)));
  }
};

TEST_F(IpcOwnTest, GetsTheOriginal) {
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
    EXPECT_EQ(ipc_stats().imports, 1u);
  }
  EXPECT_EQ(ipc_stats().imports, 0u);
  EXPECT_FALSE(user.query()) << "the import does not wait for the export";
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
  const Buffer buffer = allocate(1000, stream);
  StreamHold hold(stream);
  const ImportedBlock block = import_ipc(export_ipc(buffer.block()), Device::cuda(1));
  EXPECT_EQ(block.data(), buffer.data());
  EXPECT_FALSE(user.query()) << "the import does not wait for the export";
  hold.release();
  user.synchronize();
}

TEST_F(IpcOwnTest, OtherDevicesReachTheMemory) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!can_access_peer(Device::cuda(1), Device::cuda(0))) GTEST_SKIP() << "needs peer access";
  const Buffer buffer = allocate(8 * kMib, Stream::current(Device::cuda(0)));
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
  const Buffer buffer = allocate(1000, stream);
  driver().begin_capture(stream.native(), CaptureMode::relaxed);
  EXPECT_THAT([&] { static_cast<void>(export_ipc(buffer.block())); },
              ThrowsMessage<CaptureError>(HasSubstr("export_ipc: a current stream that is not")));
  EXPECT_EQ(ipc_stats().exports, 0u);
  driver().destroy_graph(driver().end_capture(stream.native()));
}

TEST_F(IpcOwnTest, FreedMemoryCannotBeImported) {
  Buffer buffer = allocate(1000, Stream::current());
  const IpcHandle handle = export_ipc(buffer.block());
  EXPECT_EQ(ipc_stats().exports, 1u);
  buffer.reset();
  EXPECT_EQ(ipc_stats().exports, 0u) << "an export that nobody imported leaks";
  expect_refused<InvalidArgument>(handle, "memory that was given back");
  // The next block in the same place is not mistaken for it.
  const Buffer next = allocate(1000, Stream::current());
  const IpcHandle other = export_ipc(next.block());
  expect_refused<InvalidArgument>(handle, "memory that was given back");
  EXPECT_EQ(import_ipc(other, Device::cuda(0)).data(), next.data());
}

TEST_F(IpcOwnTest, ImportsKeepFreedMemoryInLimbo) {
  Buffer buffer = allocate(1000, Stream::current());
  void* data = buffer.data();
  const IpcHandle handle = export_ipc(buffer.block());
  {
    const ImportedBlock first = import_ipc(handle, Device::cuda(0));
    buffer.reset();
    IpcStats stats = ipc_stats();
    EXPECT_EQ(stats.limbo_blocks, 1u);
    EXPECT_EQ(stats.limbo_bytes, 1000u);
    EXPECT_EQ(stats.limbo_by_consumer.size(), 1u);
    const Buffer other = allocate(1000, Stream::current());
    EXPECT_NE(other.data(), data) << "reused while it is imported";
    const ImportedBlock second = import_ipc(handle, Device::cuda(0));
    EXPECT_EQ(second.data(), data) << "somebody still holds it, so others may join";
  }
  EXPECT_EQ(ipc_stats().limbo_bytes, 0u);
  EXPECT_EQ(ipc_stats().exports, 0u);
  EXPECT_EQ(allocated(), 0u);
  expect_refused<InvalidArgument>(handle, "memory that was given back");
}

TEST_F(IpcOwnTest, ChunksArePinnedWhileTheyAreKnown) {
  VmmSource source(0, 2);
  Block block = source.allocate(3 << 20, Stream::current());
  const IpcHandle handle = export_ipc(block);
  EXPECT_EQ(decode(handle).kind, IpcKind::chunks);
  EXPECT_EQ(decode(handle).extent_bytes, 2 * source.chunk_bytes());
  EXPECT_EQ(decode(export_ipc(block)).slot, decode(handle).slot) << "one place per block";
  EXPECT_EQ(source.pins(), 1);
  source.deallocate(block);
  EXPECT_EQ(source.pins(), 0);
  EXPECT_EQ(source.live_bytes(), 0u);
}

TEST_F(IpcOwnTest, EmptyBlocksTravelToo) {
  const Buffer buffer = allocate(0, Stream::current());
  const ImportedBlock block = import_ipc(export_ipc(buffer.block()), Device::cuda(0));
  EXPECT_EQ(block.data(), nullptr);
  EXPECT_EQ(block.bytes(), 0u);
}

TEST_F(IpcOwnTest, ExportsOnlyBlocksOfTheCachingAllocator) {
  const Buffer host = pinned(1000);
  EXPECT_THAT([&] { static_cast<void>(export_ipc(host.block())); },
              ThrowsMessage<NotSupported>("export_ipc: a block of the caching allocator was "
                                          "expected, but got one of pinned on cpu"));
  Block block = allocate(1 << 20, Stream::current()).release();
  Block copy = block;
  block.allocator->deallocate(block);
  EXPECT_THAT([&] { static_cast<void>(export_ipc(copy)); },
              ThrowsMessage<InvalidArgument>(
                  "export_ipc: a live block was expected, but got one that was freed"));
}

TEST_F(IpcOwnTest, ExportsOfAnIdleStreamNeedNoEvent) {
  const Buffer buffer = allocate(1000, Stream::current());
  Stream::current().synchronize();
  EXPECT_FALSE(decode(export_ipc(buffer.block())).event.has_value());
}

TEST_F(IpcOwnTest, EventsAreUsedAgainAndTheHostNeverWaits) {
  const Stream stream = Stream::from_pool();
  FaultDriver driver;
  for (std::size_t i = 0; i < 3 * IpcEvents::kKept; ++i) {
    StreamHold hold(stream);
    ASSERT_TRUE(IpcEvents::of(0).mark(stream.native()).has_value());
    hold.release();
    stream.synchronize();
  }
  EXPECT_LE(driver.calls("create_event"), 2 * IpcEvents::kKept);  // one of each is local
  driver.reset_counts();
  StreamHold hold(stream);  // none of what follows is reached
  for (std::size_t i = 0; i < 2 * IpcEvents::kKept; ++i) {
    ASSERT_TRUE(IpcEvents::of(0).mark(stream.native()).has_value());
  }
  EXPECT_EQ(driver.calls("synchronize_event"), 0u);
  hold.release();
  stream.synchronize();
}

TEST_F(IpcOwnTest, ExportsGoOnWhereTheDriverMakesNoMoreEvents) {
  const Stream stream = Stream::from_pool();
  FaultDriver driver;
  driver.fail_on("create_event", 1, gantry::testing::kOutOfMemory, 3);
  {
    StreamHold hold(stream);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      hold.release();
    });
    EXPECT_FALSE(IpcEvents::of(0).mark(stream.native()).has_value()) << "all of it is done";
    later.join();
    EXPECT_TRUE(stream.query());
  }
  driver.fail_nothing();
  StreamHold hold(stream);
  const auto first = IpcEvents::of(0).mark(stream.native());
  ASSERT_TRUE(first.has_value());
  driver.fail_on("create_event", 1, gantry::testing::kOutOfMemory);
  const auto second = IpcEvents::of(0).mark(stream.native());
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(first->bytes, second->bytes) << "its newest event, once more";
  hold.release();
  stream.synchronize();
}

// Each thread's default stream is one of its own, though all have one handle.
TEST_F(IpcOwnTest, EventsOfOtherThreadsDefaultStreamsStay) {
  const auto mark = [] {
    return IpcEvents::of(0).mark(gantry::testing::per_thread_stream().native());
  };
  FaultDriver driver;
  StreamHold hold(gantry::testing::per_thread_stream());
  const auto own = mark();
  ASSERT_TRUE(own.has_value());
  std::optional<NativeEventHandle> other;
  std::thread([&] {
    const StreamHold others_hold(gantry::testing::per_thread_stream());
    other = mark();
  }).join();
  ASSERT_TRUE(other.has_value());
  driver.fail_on("create_event", 1, gantry::testing::kOutOfMemory);
  const auto again = mark();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->bytes, own->bytes) << "recorded another thread's event anew";
  hold.release();
  synchronize(Device::cuda(0));
}

TEST_F(IpcOwnTest, WallsBetweenProcessesAreNamed) {
  const Buffer buffer = allocate(1000, Stream::current());
  const IpcHandle handle = export_ipc(buffer.block());
  expect_refused<NotSupported>(
      changed(handle, [](IpcMessage& message) { ++message.exporter.machine; }),
      "memory of a process on this machine was expected");
  expect_refused<NotSupported>(
      changed(handle, [](IpcMessage& message) { ++message.exporter.pid_namespace; }),
      "an exporter in the same pid namespace was expected");
  expect_refused<NotSupported>(
      changed(handle, [](IpcMessage& message) { ++message.exporter.net_namespace; }),
      "docker run --network=host");
  expect_refused<NotSupported>(
      changed(handle, [](IpcMessage& message) { ++message.exporter.user; }),
      "start both as one user");
  expect_refused<PeerLostError>(
      changed(handle, [](IpcMessage& message) { ++message.exporter.process.start_time; }),
      "is gone");
}

TEST_F(IpcOwnTest, DevicesThatCannotBeSharedAreNamed) {
  const Buffer buffer = allocate(1000, Stream::current());
  const IpcHandle handle = export_ipc(buffer.block());
  const std::string own = decode(handle).device_uuid;
  expect_refused<NotSupported>(
      changed(handle, [](IpcMessage& message) { message.device_uuid = "MIG-1-2-3"; }),
      "memory of a whole GPU was expected, but got memory of the MIG instance MIG-1-2-3");
  expect_refused<NotSupported>(
      changed(handle, [](IpcMessage& message) { message.device_uuid = "GPU-masked"; }),
      ("but got GPU-masked, and visible are " + own).c_str());
}

}  // namespace
}  // namespace gantry::memory
