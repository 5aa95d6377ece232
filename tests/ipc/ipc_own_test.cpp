// Exports that are imported in their own process, and exports that cannot be made or opened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/device/peer.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "ipc/events.hpp"
#include "ipc/exporter.hpp"
#include "ipc/handle.hpp"
#include "ipc/lifetime.hpp"
#include "streams/event_pool.hpp"
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
  void TearDown() override {
    IpcExporter::instance().verify();
    HeapTest::TearDown();
  }
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

TEST_F(IpcOwnTest, DroppingWaitsForTheCurrentStream) {
  const Stream own = Stream::current();
  const Stream user = Stream::from_pool();
  for (const bool is_freed_first : {false, true}) {
    Buffer buffer = allocate(own, 3 * kMib);
    std::optional<ImportedBlock> import = import_ipc(export_ipc(buffer.block()), Device::cuda(0));
    own.synchronize();
    StreamHold hold(user);
    if (is_freed_first) buffer.reset();
    {
      const StreamGuard guard(user);
      import.reset();
    }
    buffer.reset();
    EXPECT_EQ(ipc_stats().limbo_blocks, 0u);
    EXPECT_EQ(stats().pending_bytes, static_cast<std::int64_t>(3 * kMib)) << "free at once";
    const PooledEvent end(0);  // of the driver: clocks learn nothing from it
    driver().record_event(end.get(), user.native());
    StreamHold later(user);
    hold.release();
    driver().synchronize_event(end.get());
    EXPECT_EQ(allocate(own, 30 * kMib).bytes(), 30 * kMib);  // looks at what is over by now
    EXPECT_EQ(stats().pending_bytes, 0) << "waits for work after the drop";
    later.release();
    user.synchronize();
    empty_cache();
  }
}

TEST_F(IpcOwnTest, AFreedBlockWaitsForItsGraphsAndItsImports) {
  constexpr auto kBytes = static_cast<std::int64_t>(3 * kMib);
  for (const bool graph_ends_first : {true, false}) {
    const Stream stream = Stream::from_pool();
    Buffer buffer = allocate(stream, 3 * kMib);
    std::optional<ImportedBlock> import = import_ipc(export_ipc(buffer.block()), Device::cuda(0));
    Graph graph;
    graph.capture_begin({.stream = stream, .mode = CaptureMode::relaxed});
    buffer.reset();
    graph.capture_end();
    const auto expect_held = [&](std::int64_t limbo, std::int64_t pending) {
      empty_cache();  // frees what nobody uses
      EXPECT_EQ(stats().limbo_bytes, limbo) << graph_ends_first;
      EXPECT_EQ(stats().pending_bytes, pending) << graph_ends_first;
      EXPECT_EQ(stats().reserved_bytes.all.current > 0, limbo + pending > 0) << graph_ends_first;
    };
    expect_held(kBytes, 0);
    graph_ends_first ? graph.reset() : import.reset();
    graph_ends_first ? expect_held(kBytes, 0) : expect_held(0, kBytes);
    graph_ends_first ? import.reset() : graph.reset();
    expect_held(0, 0);
  }
}

TEST_F(IpcOwnTest, ASecondFreeOfAnExportIsIgnored) {
  VmmSource source(0, 2);
  for (Allocator* allocator :
       {static_cast<Allocator*>(&source), &memory::allocator(Device::cuda(0))}) {
    Block block = allocator->allocate(Stream::current(), 3 << 20);
    Block copy = block;
    const IpcHandle handle = export_ipc(block);
    {
      const ImportedBlock import = import_ipc(handle, Device::cuda(0));
      allocator->deallocate(block);
      allocator->deallocate(copy);
      EXPECT_EQ(ipc_stats().limbo_blocks, 1u);
      EXPECT_EQ(import_ipc(handle, Device::cuda(0)).data(), import.data());
      EXPECT_EQ(source.live_bytes(), allocator == &source ? 3u << 20 : 0u)
          << "freed under the import";
      EXPECT_EQ(stats().limbo_bytes > 0, allocator != &source);
    }
    EXPECT_EQ(ipc_stats().limbo_blocks, 0u);
    EXPECT_EQ(source.live_bytes(), 0u);
  }
}

// Closes the page of a count. Whoever reads the count next opens the page, and calls a function
// before it reads.
class ReadTrap {
 public:
  ReadTrap(std::atomic<std::uint32_t>& count, std::function<void()> before_read)
      : before_read_(std::move(before_read)) {
    const auto address = reinterpret_cast<std::uintptr_t>(&count);
    page_ = reinterpret_cast<std::byte*>(&count) - address % bytes_;
    armed_ = this;
    struct sigaction action {};
    action.sa_sigaction = &spring;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before_);
    mprotect(page_, bytes_, PROT_NONE);
  }
  ~ReadTrap() {
    mprotect(page_, bytes_, PROT_READ | PROT_WRITE);
    sigaction(SIGSEGV, &before_, nullptr);
    armed_ = nullptr;
  }
  ReadTrap(const ReadTrap&) = delete;
  ReadTrap& operator=(const ReadTrap&) = delete;

  [[nodiscard]] bool has_sprung() const { return has_sprung_; }

 private:
  static void spring(int, siginfo_t* info, void*) {
    ReadTrap& trap = *armed_;
    const auto* at = static_cast<std::byte*>(info->si_addr);
    if (trap.has_sprung_ || at < trap.page_ || at >= trap.page_ + trap.bytes_) {
      sigaction(SIGSEGV, &trap.before_, nullptr);  // another fault, which comes again
      return;
    }
    trap.has_sprung_ = true;
    mprotect(trap.page_, trap.bytes_, PROT_READ | PROT_WRITE);
    trap.before_read_();
  }

  inline static ReadTrap* armed_ = nullptr;

  const std::function<void()> before_read_;
  const std::size_t bytes_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::byte* page_ = nullptr;
  struct sigaction before_ {};
  bool has_sprung_ = false;
};

// The exporter has seen that the first importer has no reference when it reads the second one's.
TEST_F(IpcOwnTest, AReferenceThatIsTakenWhileTheExporterLooksKeepsTheBlock) {
  IpcExporter& exporter = IpcExporter::instance();
  UniqueFd no_socket;
  const auto first = exporter.add_consumer(no_socket, this_process());
  const auto second = exporter.add_consumer(no_socket, this_process());
  Buffer buffer = allocate(Stream::current(), 1000);
  const std::uint32_t slot = decode(export_ipc(buffer.block())).slot;
  const auto state = [&] { return SlotState::of(exporter.slots()[slot].load()); };
  bool is_taken = false;
  for (const bool is_free : {true, false}) {
    {
      const ReadTrap trap(second->references[slot], [&] {
        first->references[slot].fetch_add(1);
        is_taken = state().is_open && state().in_limbo;
      });
      if (is_free) {
        buffer.reset();
      } else {
        ipc_collect();
      }
      ASSERT_TRUE(trap.has_sprung()) << is_free;
    }
    ASSERT_TRUE(is_taken);
    EXPECT_TRUE(state().is_open) << is_free;
    EXPECT_TRUE(state().in_limbo) << "the importer would not tell of its release";
    EXPECT_EQ(ipc_stats().limbo_blocks, 1u) << "freed under the reference";
    first->references[slot].fetch_sub(1);
  }
  ipc_collect();
  EXPECT_FALSE(state().is_open);
  EXPECT_EQ(ipc_stats().limbo_blocks, 0u);
  for (const auto& consumer : {first, second}) exporter.disconnect(*consumer);
  EXPECT_TRUE(exporter.consumers().empty());
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
  // Events live as long as the process, also those of earlier runs of this test.
  static std::size_t made = 0;
  made += 2 * IpcEvents::kEventsPerStream;
  if (2 * made > IpcEvents::kMaxEvents) GTEST_SKIP() << "the process has too few events left";
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
  std::set<decltype(NativeEventHandle::bytes)> handles;
  for (std::size_t i = 0; i < 2 * IpcEvents::kEventsPerStream; ++i) {
    const auto handle = IpcEvents::of(0).record(stream.native());
    ASSERT_TRUE(handle.has_value());
    EXPECT_TRUE(handles.insert(handle->bytes).second) << i << ": its work is not over";
  }
  EXPECT_EQ(driver.calls("create_event"), 2 * IpcEvents::kEventsPerStream)
      << "beside the idle ones";
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
