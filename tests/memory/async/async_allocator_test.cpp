#include "memory/async/async_allocator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "memory/backends.hpp"
#include "tests/memory/allocator_contract.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/reused_handle.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::expect_stats_add_up;
using gantry::testing::FaultDriver;
using gantry::testing::ForeignStream;
using gantry::testing::kMib;
using gantry::testing::StreamHold;
using ::testing::HasSubstr;

class AsyncAllocatorTest : public gantry::testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    if (!driver().supports_memory_pools(0)) GTEST_SKIP() << "cuda:0 has no memory pools";
    async().empty_cache(Device::cuda(0));
    ASSERT_EQ(stats().reserved_bytes.all.current, 0) << "an earlier test leaked";
    async().reset_peak_stats(0);
  }
  void TearDown() override {
    if (!IsSkipped()) {
      async().set_fraction(1, 0);
      async().empty_cache(Device::cuda(0));
      expect_clean();
    }
    DeviceTest::TearDown();
  }
  static DeviceAllocator& async() { return async_allocator(); }
  static Stats stats() { return async().stats(0); }
  static Buffer make(std::size_t bytes, const Stream& stream = Stream::current()) {
    return Buffer(async().allocate(stream, bytes));
  }
  static void expect_clean() {
    const Stats now = stats();
    expect_stats_add_up(now);
    EXPECT_EQ(now.allocation.all.current, 0);
    EXPECT_EQ(now.active.all.current, 0);
    EXPECT_EQ(now.active_bytes.all.current, 0);
    EXPECT_EQ(now.reserved_bytes.all.current, 0);
    EXPECT_EQ(driver().pool_memory(0).used, 0u);
  }
  /// Runs `scenario` once per driver call it makes, that call failing; it must be left clean.
  static void sweep(const std::function<void()>& scenario) {
    FaultDriver driver;
    scenario();
    const auto counts = driver.counts();
    for (const auto& [call, count] : counts) {
      if (call.starts_with("destroy_") || call == "restore_device") continue;
      for (std::uint64_t nth = 1; nth <= count; ++nth) {
        SCOPED_TRACE(call + " " + std::to_string(nth));
        driver.reset_counts();
        driver.fail_on(call, nth);
        try {
          scenario();
        } catch (const Error&) {
        }
        driver.fail_nothing();
        EXPECT_EQ(stats().allocation.all.current, 0);
        async().empty_cache(Device::cuda(0));
        expect_clean();
      }
    }
  }
};

// Holds back the first request until there is a second one, here or told of by `turned_away`.
class CrowdedDriver : public FaultDriver {
 public:
  void* allocate_async(NativeStream stream, std::size_t bytes) override {
    ++requests_;
    while (requests_ < 2 && !turned_away) std::this_thread::yield();
    return FaultDriver::allocate_async(stream, bytes);
  }
  std::atomic<bool> turned_away{false};

 private:
  std::atomic<int> requests_{0};
};

TEST_F(AsyncAllocatorTest, ThreadsTogetherStayBelowTheLimit) {
  const auto total = static_cast<double>(device_properties(Device::cuda(0)).total_memory);
  async().set_fraction((static_cast<double>(60 * kMib) + 0.5) / total, 0);
  const Stream stream = Stream::current();
  CrowdedDriver driver;
  std::array<Buffer, 2> buffers;
  std::vector<std::thread> threads;
  for (Buffer& buffer : buffers) {
    threads.emplace_back([&] {
      try {
        buffer = make(40 * kMib, stream);
      } catch (const OutOfMemoryError&) {
        driver.turned_away = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(driver.turned_away);
  EXPECT_EQ(stats().active_bytes.all.current, static_cast<std::int64_t>(40 * kMib));
  driver.turned_away = true;
  for (Buffer& buffer : buffers) buffer.reset();
  EXPECT_NO_THROW(static_cast<void>(make(60 * kMib, stream)));
  stream.synchronize();
}

TEST_F(AsyncAllocatorTest, CountsBlocksAndBytes) {
  const Stats before = stats();
  const Buffer small = make(1000);
  const Buffer large = make(3 * kMib);
  const Stats now = stats();
  expect_stats_add_up(now);
  EXPECT_EQ(now.allocation.small_pool.current, 1);
  EXPECT_EQ(now.allocation.large_pool.current, 1);
  EXPECT_EQ(now.allocation.all.allocated, before.allocation.all.allocated + 2);
  EXPECT_EQ(now.allocated_bytes.small_pool.current, 1024);
  EXPECT_EQ(now.requested_bytes.all.current, static_cast<std::int64_t>(1000 + 3 * kMib));
  EXPECT_GE(now.reserved_bytes.all.current, now.allocated_bytes.all.current);
  EXPECT_GE(now.reserved_bytes.all.peak, now.reserved_bytes.all.current);
  EXPECT_EQ(async().name(), "async");
}

TEST_F(AsyncAllocatorTest, PeaksAreKeptUntilTheyAreReset) {
  { const Buffer buffer = make(30 * kMib); }
  EXPECT_EQ(stats().allocated_bytes.all.peak, static_cast<std::int64_t>(30 * kMib));
  EXPECT_GE(stats().reserved_bytes.all.peak, static_cast<std::int64_t>(30 * kMib));
  async().empty_cache(Device::cuda(0));
  async().reset_peak_stats(0);
  EXPECT_EQ(stats().allocated_bytes.all.peak, 0);
  EXPECT_EQ(stats().reserved_bytes.all.peak, 0);
}

TEST_F(AsyncAllocatorTest, PlainFreesAreOrderedOnTheirOwnStream) {
  const Stream stream = Stream::from_pool();
  StreamHold hold(stream);
  Buffer buffer = make(4096, stream);
  const FaultDriver driver;
  buffer.reset();  // does not block
  EXPECT_EQ(driver.calls("deallocate_async"), 1u);
  EXPECT_EQ(driver.calls("record_event"), 0u);
  hold.release();
}

TEST_F(AsyncAllocatorTest, RecordedStreamsHoldTheMemoryBackButNotItsOwnStream) {
  const Stream own = Stream::from_pool();
  const Stream user = Stream::from_pool();
  Buffer buffer = make(4 * kMib, own);
  void* data = buffer.data();
  {
    StreamHold hold(user);
    async().record_stream(buffer.block(), user);
    async().record_stream(buffer.block(), user);
    async().record_stream(buffer.block(), own);
    {
      const FaultDriver driver;
      buffer.reset();
      EXPECT_EQ(driver.calls("record_event"), 2u) << "one for its stream, one for the user";
    }
    own.synchronize();  // is not made to wait
    for (int i = 0; i < 50; ++i) {
      const Buffer other = make(4 * kMib, own);
      ASSERT_NE(other.data(), data) << "reused while a stream works with it";
    }
    driver().trim_pool(0, 0);
    EXPECT_GE(driver().pool_memory(0).reserved, 4 * kMib);
    hold.release();
  }
  async().empty_cache(Device::cuda(0));
  EXPECT_EQ(driver().pool_memory(0).reserved, 0u) << "lost after the stream was done";
}

// An allocator that forwards to it gives all blocks back to it, as this test does.
TEST_F(AsyncAllocatorTest, TakesBackTheBlocksOfCaptures) {
  const Stream stream = Stream::from_pool();
  const Stream user = Stream::from_pool();
  driver().begin_capture(stream.native(), CaptureMode::relaxed);
  Block block = async().allocate(stream, 4096);
  block.allocator = nullptr;
  async().record_stream(block, user);
  async().record_use(block, stream);
  async().deallocate(block);
  EXPECT_EQ(block.handle, nullptr);
  driver().destroy_graph(driver().end_capture(stream.native()));
}

TEST_F(AsyncAllocatorTest, StreamsOfOtherDevicesMayBeRecorded) {
  GANTRY_REQUIRE_DEVICES(2);
  const Stream user = Stream::from_pool(Device::cuda(1));
  Buffer buffer = make(4 * kMib);
  StreamHold hold(user);
  async().record_stream(buffer.block(), user);
  buffer.reset();
  driver().trim_pool(0, 0);
  EXPECT_GE(driver().pool_memory(0).reserved, 4 * kMib);
  hold.release();
}

TEST_F(AsyncAllocatorTest, OutOfMemoryTrimsOnceAndRetries) {
  { const Buffer cached = make(3 * kMib); }
  Stream::current().synchronize();
  const Stats before = stats();
  FaultDriver faults;
  faults.fail_on("allocate_async", 1, gantry::testing::kOutOfMemory);
  const Buffer buffer = make(1000);
  EXPECT_NE(buffer.data(), nullptr);
  EXPECT_EQ(faults.calls("synchronize_device"), 0u) << "it may wait for work of this thread";
  EXPECT_EQ(faults.calls("trim_pool"), 1u);
  EXPECT_EQ(faults.calls("allocate_async"), 2u);
  EXPECT_EQ(stats().num_alloc_retries, before.num_alloc_retries + 1);
  EXPECT_EQ(stats().num_ooms, before.num_ooms);
}

TEST_F(AsyncAllocatorTest, OutOfMemoryCarriesTheReport) {
  const Buffer live = make(2 * kMib);
  const Stats before = stats();
  FaultDriver faults;
  faults.fail_on("allocate_async", 1, gantry::testing::kOutOfMemory, 2);
  try {
    static_cast<void>(make(3000));
    FAIL() << "no error";
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Tried to allocate 3.00 KiB"));
    EXPECT_EQ(error.breakdown().requested, 3072);
    EXPECT_EQ(error.breakdown().allocated, static_cast<std::int64_t>(2 * kMib));
    EXPECT_GE(error.breakdown().reserved, error.breakdown().allocated);
    EXPECT_EQ(error.breakdown().limit, error.breakdown().total);
  }
  EXPECT_EQ(stats().num_ooms, before.num_ooms + 1);
  EXPECT_EQ(stats().allocation.all.current, 1);
}

TEST_F(AsyncAllocatorTest, TheLimitHolds) {
  const auto total = static_cast<double>(device_properties(Device::cuda(0)).total_memory);
  async().set_fraction((static_cast<double>(8 * kMib) + 0.5) / total, 0);
  Buffer first = make(5 * kMib);
  EXPECT_THROW(static_cast<void>(make(4 * kMib)), OutOfMemoryError);
  const Buffer second = make(3 * kMib);
  EXPECT_THROW(static_cast<void>(make(1)), OutOfMemoryError);
  first.reset();
  EXPECT_NE(make(5 * kMib).data(), nullptr);
}

TEST_F(AsyncAllocatorTest, EveryDriverCallMayFail) {
  const Stream own = Stream::from_pool();
  const Stream user = Stream::from_pool();
  sweep([&] {
    const Buffer plain = make(1000, own);
    Buffer recorded = make(3 * kMib, own);
    async().record_stream(recorded.block(), user);
    recorded.reset();
    const Buffer next = make(3 * kMib, own);
    async().empty_cache(Device::cuda(0));
  });
}

TEST_F(AsyncAllocatorTest, FreesThatFailAreMadeUpFor) {
  const Stream own = Stream::from_pool();
  Buffer buffer = make(4096, own);
  void* data = buffer.data();
  FaultDriver faults;
  faults.fail_on("deallocate_async", 1);
  buffer.reset();
  EXPECT_EQ(stats().allocation.all.current, 0);
  EXPECT_EQ(stats().active.all.current, 1) << "its memory is still held";
  const Buffer next = make(100, own);
  EXPECT_EQ(stats().active.all.current, 1);
  EXPECT_EQ(faults.calls("deallocate_async"), 2u);
  static_cast<void>(data);
}

TEST_F(AsyncAllocatorTest, ForeignStreamsMayBeDestroyedAfterTheFree) {
  ForeignStream owner;
  ForeignStream user;
  const Stream own = owner.stream();
  Buffer plain = make(4096, own);
  Buffer recorded = make(4 * kMib, own);
  void* data = recorded.data();
  async().record_stream(recorded.block(), user.stream());
  StreamHold hold(user.stream());
  FaultDriver faults;
  faults.fail_on("deallocate_async", 1, gantry::testing::kUnknown, 2);
  plain.reset();
  recorded.reset();
  owner.destroy();
  user.destroy();
  faults.reset_counts();
  {
    const Buffer next = make(4 * kMib, Stream::from_pool());
    EXPECT_NE(next.data(), data) << "reused while a stream works with it";
    EXPECT_EQ(faults.calls("deallocate_async"), 2u) << "both frees are made up for";
    EXPECT_EQ(faults.calls("record_event"), 0u) << "the streams are gone";
    EXPECT_EQ(stats().active.all.current, 1);
  }
  hold.release();
  async().empty_cache(Device::cuda(0));
  EXPECT_EQ(stats().active.all.current, 0);
}

// Not allowed, but where the driver says that a stream is gone, nothing is lost or reused too soon.
TEST_F(AsyncAllocatorTest, BlocksOfLostStreamsWaitForTheDevice) {
  GANTRY_REQUIRE_SIM();
  const Stream pooled = Stream::from_pool();
  ForeignStream owner;
  ForeignStream user;
  Buffer plain = make(4096, owner.stream());
  Buffer recorded = make(4 * kMib, pooled);
  void* data = recorded.data();
  async().record_stream(recorded.block(), user.stream());
  StreamHold hold(user.stream());
  owner.destroy();
  user.destroy();
  plain.reset();
  recorded.reset();
  EXPECT_NE(make(4 * kMib, pooled).data(), data) << "reused while a stream works with it";
  EXPECT_EQ(stats().allocation.all.current, 0);
  EXPECT_EQ(stats().active.all.current, 2) << "nobody waited for the device";
  hold.release();
  const auto total = static_cast<double>(device_properties(Device::cuda(0)).total_memory);
  async().set_fraction((static_cast<double>(5 * kMib) + 0.5) / total, 0);
  EXPECT_NE(make(4 * kMib, pooled).data(), nullptr) << "kept though memory is short";
  EXPECT_EQ(stats().active.all.current, 0);
}

TEST_F(AsyncAllocatorTest, OnlyItsThreadCanFreeOnAPerThreadStream) {
  const Stream pooled = Stream::from_pool();
  const Stream mine = gantry::testing::per_thread_stream();
  Buffer here = make(kMib, mine);
  here.reset();
  Buffer recorded = make(kMib, pooled);
  async().record_stream(recorded.block(), mine);
  recorded.reset();
  EXPECT_EQ(stats().active.all.current, 0) << "freed in order";

  StreamHold hold(mine);
  Buffer elsewhere = make(kMib, mine);
  Buffer used = make(kMib, pooled);
  async().record_stream(used.block(), mine);
  std::thread([&] {
    elsewhere.reset();
    used.reset();
  }).join();
  EXPECT_EQ(stats().allocation.all.current, 0);
  EXPECT_EQ(stats().active.all.current, 2) << "freed on a stream of the other thread";
  hold.release();
  async().empty_cache(Device::cuda(0));
  EXPECT_EQ(stats().active.all.current, 0);
}

TEST_F(AsyncAllocatorTest, HandlesThatComeBackAreOtherStreams) {
  GANTRY_REQUIRE_SIM();
  const NativeStream native = driver().create_stream(0, 0);
  const Stream old = Stream::external(native.handle, Device::cuda(0));
  Buffer buffer = make(4096, old);
  driver().destroy_stream(native);
  const auto again = gantry::testing::stream_with_handle_of(native);
  if (!again) GTEST_SKIP() << "the handle did not come back";
  ASSERT_NE(Stream::external(again->handle, Device::cuda(0)).id(), old.id());
  {
    const FaultDriver driver;
    buffer.reset();
    EXPECT_EQ(driver.total_calls(), 0u) << "nothing is enqueued on the other stream";
  }
  async().empty_cache(Device::cuda(0));
  EXPECT_EQ(stats().active.all.current, 0);
  driver().destroy_stream(*again);
}

TEST_F(AsyncAllocatorTest, BlocksAreNotShared) {
  const Buffer buffer = make(4096);
  EXPECT_THROW(static_cast<void>(export_ipc(buffer.block())), NotSupported);
}

TEST_F(AsyncAllocatorTest, SeveralShareThePoolButCountForThemselves) {
  const Stream stream = Stream::from_pool();
  const auto second = make_allocator("async", AllocConfig{});
  Buffer buffer(second->allocate(stream, 4096));
  second->record_stream(buffer.block(), Stream::from_pool());
  EXPECT_EQ(second->stats(0).allocation.all.current, 1);
  EXPECT_EQ(stats().allocation.all.current, 0);
  EXPECT_EQ(second->stats(0).reserved_bytes.all.current, stats().reserved_bytes.all.current);
}

TEST_F(AsyncAllocatorTest, ServesADeviceInPlaceOfTheCachingAllocator) {
  // An owner of nothing: the allocator of the process is never destroyed.
  set_allocator(Device::cuda(0), {std::shared_ptr<Allocator>(), &async()});
  Buffer buffer = allocate(Stream::current(), 4096);
  EXPECT_EQ(buffer.block().allocator, &async());
  set_allocator(Device::cuda(0), nullptr);
  buffer.reset();
}

TEST_F(AsyncAllocatorTest, ChildrenCannotAllocateAndTheirFreesDoNothing) {
  const Stream stream = Stream::current();
  Buffer buffer = make(4096, stream);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int failed = 1;
    try {
      static_cast<void>(make(100, stream));
    } catch (const ForkError&) {
      failed = 0;
    }
    buffer.reset();
    _exit(failed);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(stats().allocation.all.current, 1);
}

// Streams write marks into their blocks; nobody else may write there until the free.
TEST_F(AsyncAllocatorTest, RandomUseKeepsEveryBlockWhole) {
  std::mt19937 random(7);
  const std::vector<Stream> streams = {Stream::from_pool(), Stream::from_pool(),
                                       Stream::from_pool()};
  struct Live {
    Buffer buffer;
    Stream stream;
    std::uint8_t mark;
  };
  std::vector<Live> live;
  std::size_t bytes = 0;
  for (int step = 0; step < 2000; ++step) {
    if (live.size() < 40 && random() % 2 == 0) {
      const Stream& stream = streams[random() % streams.size()];
      Live made{make(1 + random() % 200000, stream), stream, static_cast<std::uint8_t>(random())};
      bytes += made.buffer.bytes();
      driver().fill(made.buffer.data(), made.mark, made.buffer.bytes(), stream.native());
      live.push_back(std::move(made));
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      Live& last = live.back();
      std::uint8_t ends[2] = {};
      driver().copy(&ends[0], last.buffer.data(), 1, last.stream.native());
      driver().copy(&ends[1], static_cast<std::byte*>(last.buffer.data()) + last.buffer.bytes() - 1,
                    1, last.stream.native());
      last.stream.synchronize();
      ASSERT_EQ(ends[0], last.mark);
      ASSERT_EQ(ends[1], last.mark);
      if (random() % 3 == 0) {
        async().record_stream(last.buffer.block(), streams[random() % streams.size()]);
      }
      bytes -= last.buffer.bytes();
      live.pop_back();
    }
    ASSERT_EQ(stats().requested_bytes.all.current, static_cast<std::int64_t>(bytes));
  }
  expect_stats_add_up(stats());
}

}  // namespace
}  // namespace gantry::memory

namespace gantry::testing {

// defers_reuse is false because the driver decides when memory comes back.
INSTANTIATE_TEST_SUITE_P(Async, AllocatorContract,
                         ::testing::Values(AllocatorProvider{
                             "async",
                             []() -> memory::Allocator& { return memory::async_allocator(); },
                             Device::cuda(0), false}),
                         [](const auto& info) { return info.param.label; });

}  // namespace gantry::testing
