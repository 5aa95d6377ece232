// What backend native does when memory is short, step by step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/memory/caching_allocator.hpp>

#include "core/text/byte_count.hpp"
#include "memory/heap/device_heap.hpp"
#include "memory/oom/oom_report.hpp"
#include "tests/memory/heap/native_backend.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::kMib;
using gantry::testing::StreamHold;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class NativeRecoveryTest : public gantry::testing::HeapTest {};

TEST_F(NativeRecoveryTest, GivesCachedSegmentsBackAndTriesAgain) {
  const Stream stream = Stream::current();
  const Stream other = Stream::from_pool();
  { const Buffer cached = allocate(other, 30 * kMib); }
  limit_to(40 * kMib);
  const Buffer buffer = allocate(stream, 32 * kMib);
  EXPECT_EQ(reserved(), 32 * kMib);
  EXPECT_EQ(stats().num_alloc_retries, 1);
  EXPECT_EQ(stats().num_ooms, 0);
}

TEST_F(NativeRecoveryTest, TriesAgainWhenTheDriverIsOutOfMemory) {
  const Stream stream = Stream::current();
  { const Buffer cached = allocate(Stream::from_pool(), 30 * kMib); }
  FaultDriver driver;
  driver.fail_on("allocate", 1, gantry::testing::kOutOfMemory);
  const Buffer buffer = allocate(stream, 32 * kMib);
  EXPECT_EQ(driver.calls("allocate"), 2u);
  EXPECT_EQ(driver.calls("deallocate"), 1u);
}

TEST_F(NativeRecoveryTest, WaitsForRecordedStreamsAndSearchesAgain) {
  const Stream own = Stream::current();
  const Stream user = Stream::from_pool();
  limit_to(34 * kMib);
  Buffer buffer = allocate(own, 32 * kMib);
  void* data = buffer.data();
  std::optional<StreamHold> hold(user);
  allocator(Device::cuda(0)).record_stream(buffer.block(), user);
  buffer.reset();
  const std::int64_t waits = stats().num_sync_all_streams;
  FaultDriver driver;
  std::thread releaser([&] {
    // Lets go only when the allocator is seen to wait.
    while (driver.calls("synchronize_event") == 0) std::this_thread::yield();
    hold->release();
  });
  const Buffer again = allocate(own, 32 * kMib);
  releaser.join();
  EXPECT_EQ(again.data(), data);
  EXPECT_EQ(driver.calls("deallocate"), 0u) << "a fitting block was thrown away";
  EXPECT_EQ(stats().num_sync_all_streams, waits + 1);
}

TEST_F(NativeRecoveryTest, OtherThreadsAllocateWhileOneWaits) {
  const Stream own = Stream::current();
  const Stream user = Stream::from_pool();
  limit_to(34 * kMib);
  Buffer small = allocate(own, 1000);
  Buffer buffer = allocate(own, 32 * kMib);
  std::optional<StreamHold> hold(user);
  allocator(Device::cuda(0)).record_stream(buffer.block(), user);
  buffer.reset();
  FaultDriver driver;
  std::thread other([&] {
    while (driver.calls("synchronize_event") == 0) std::this_thread::yield();
    small = allocate(own, 2000);  // the wait ends only after this
    hold->release();
  });
  const Buffer again = allocate(own, 32 * kMib);
  other.join();
  EXPECT_NE(again.data(), nullptr);
}

TEST_F(NativeRecoveryTest, ReportsWhatIsHeldAndStaysUsable) {
  const Stream stream = Stream::current();
  limit_to(64 * kMib);
  const Buffer live = allocate(stream, 40 * kMib);
  const std::int64_t ooms = stats().num_ooms;
  try {
    static_cast<void>(allocate(stream, 30 * kMib));
    FAIL() << "more than the limit was allocated";
  } catch (const OutOfMemoryError& error) {
    const OomReport& breakdown = error.breakdown();
    EXPECT_EQ(breakdown.requested, static_cast<std::int64_t>(30 * kMib));
    EXPECT_EQ(breakdown.allocated, static_cast<std::int64_t>(40 * kMib));
    EXPECT_EQ(breakdown.reserved, static_cast<std::int64_t>(40 * kMib));
    EXPECT_EQ(breakdown.limit, static_cast<std::int64_t>(64 * kMib));
    EXPECT_EQ(breakdown.total, static_cast<std::int64_t>(mem_get_info().total));
    EXPECT_EQ(error.device(), "cuda:0");
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("CUDA out of memory. Tried to allocate 30.00 MiB. GPU 0 has a "
                                "total capacity of "),
                      HasSubstr(" is free. 64.00 MiB allowed; Of the allocated memory 40.00 MiB is "
                                "allocated by gantry, and 0 bytes is reserved by gantry but "
                                "unallocated."),
                      HasSubstr("set_fraction")));
  }
  EXPECT_EQ(stats().num_ooms, ooms + 1);
  const Buffer fits = allocate(stream, 20 * kMib);
  EXPECT_EQ(allocated(), 60 * kMib);
}

TEST_F(NativeRecoveryTest, ErrorNamesPoolsWithIdleMemory) {
  const Stream stream = Stream::current();
  limit_to(64 * kMib);
  MemPool pool;
  { const Buffer idle = pool.allocate(stream, 48 * kMib); }
  const Buffer live = pool.allocate(stream, 2 * kMib);
  synchronize();
  try {
    static_cast<void>(allocate(stream, 32 * kMib));
    ADD_FAILURE() << "more than the limit was allocated";
  } catch (const OutOfMemoryError& error) {
    const OomReport& report = error.breakdown();
    EXPECT_EQ(report.private_pools, report.private_free + report.allocated);
    EXPECT_GE(report.private_free, static_cast<std::int64_t>(46 * kMib));
    EXPECT_EQ(report.stream_free, 0);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(" is reserved by private pools without use_on_oom and by graphs, " +
                                format_bytes(report.private_free) + " of it unallocated."),
                      Not(HasSubstr("still use")), Not(HasSubstr("in pieces")),
                      Not(HasSubstr("max_split_size_mb"))));
  }
}

TEST_F(NativeRecoveryTest, FractionCountsWhatIsCached) {
  const Stream stream = Stream::current();
  limit_to(22 * kMib);
  const Buffer small = allocate(stream, 1000);
  const Buffer large = allocate(stream, 2 * kMib);
  EXPECT_EQ(reserved(), 22 * kMib);
  EXPECT_THROW(static_cast<void>(allocate(stream, 19 * kMib)), OutOfMemoryError);
  const Buffer inside = allocate(stream, 18 * kMib);
  EXPECT_EQ(reserved(), 22 * kMib);
}

TEST_F(NativeRecoveryTest, ObserversAreCalledForEachOutOfMemory) {
  static std::vector<std::pair<Device, OomReport>> heard;
  add_oom_observer([](Device device, const OomReport& breakdown) {
    heard.emplace_back(device, breakdown);
    // The lock is not held: the allocator can be asked.
    static_cast<void>(stats(device));
  });
  add_oom_observer([](Device, const OomReport&) { throw std::runtime_error("ignored"); });
  limit_to(4 * kMib);
  EXPECT_THROW(static_cast<void>(allocate(Stream::current(), 30 * kMib)), OutOfMemoryError);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].first, Device::cuda(0));
  EXPECT_EQ(heard[0].second.requested, static_cast<std::int64_t>(30 * kMib));
}

TEST_F(NativeRecoveryTest, PassesOtherDriverErrorsOn) {
  FaultDriver driver;
  driver.fail_on("allocate", 1, gantry::testing::kIllegalAddress);
  EXPECT_THROW(static_cast<void>(allocate(Stream::current(), 1000)), CudaError);
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(NativeRecoveryTest, CollectsUnusedSegmentsAboveTheThreshold) {
  const auto total = static_cast<double>(device_properties(Device::cuda(0)).total_memory);
  DeviceHeap heap(0, {.gc_threshold = 0.5, .fraction = (400.0 * kMib + 0.5) / total},
                  HeapBacking::segments);
  const Stream stream = Stream::current();
  const auto cycle = [&](std::size_t bytes) {
    heap.deallocate(heap.allocate(bytes, stream, heap.common_pool()));
    synchronize();
  };
  cycle(100 * kMib);
  cycle(150 * kMib);
  EXPECT_EQ(heap.stats().reserved_bytes.all.current, static_cast<std::int64_t>(250 * kMib));
  cycle(160 * kMib);  // 200 MiB is the threshold: enough of what is unused goes first
  EXPECT_LE(heap.stats().reserved_bytes.all.current, static_cast<std::int64_t>((200 + 160) * kMib));
  EXPECT_LT(heap.stats().reserved_bytes.all.current, static_cast<std::int64_t>(410 * kMib));
  EXPECT_GT(heap.stats().reserved_bytes.all.current, static_cast<std::int64_t>(160 * kMib))
      << "more went than has to";
  EXPECT_EQ(heap.stats().num_alloc_retries, 0);
  heap.empty_cache();
  EXPECT_EQ(heap.stats().reserved_bytes.all.current, 0);
}

TEST_F(NativeRecoveryTest, BlocksAboveMaxSplitSizeStayWhole) {
  DeviceHeap heap(0, {.max_split_bytes = 40 * kMib}, HeapBacking::segments);
  const Stream stream = Stream::current();
  const auto take = [&](std::size_t bytes) -> HeapBlock& {
    return heap.allocate(bytes, stream, heap.common_pool());
  };
  HeapBlock& large = take(100 * kMib);
  void* place = large.data;
  heap.deallocate(large);
  HeapBlock& small = take(20 * kMib);
  EXPECT_NE(small.data, place) << "a small request took a block above max_split_size";
  HeapBlock& similar = take(90 * kMib);
  EXPECT_EQ(similar.data, place);
  EXPECT_EQ(similar.bytes, 100 * kMib) << "it was cut";
  heap.deallocate(similar);
  HeapBlock& half = take(50 * kMib);
  EXPECT_NE(half.data, place) << "twice as large a block was taken whole";
  EXPECT_EQ(heap.stats().oversize_segments.current, 2);
  EXPECT_EQ(heap.stats().oversize_allocations.current, 1);
  EXPECT_EQ(heap.stats().max_split_size, static_cast<std::int64_t>(40 * kMib));
  heap.deallocate(small);
  heap.deallocate(half);
  heap.empty_cache();
  EXPECT_EQ(heap.stats().oversize_segments.current, 0);
}

// Its segment is rounded up to max_split_size, above which blocks serve similar requests only.
TEST_F(NativeRecoveryTest, ASegmentServesTheRequestThatItWasMadeFor) {
  DeviceHeap heap(0, {.max_split_bytes = 40 * kMib}, HeapBacking::segments);
  const Stream stream = Stream::current();
  for (int i = 0; i < 3; ++i) {
    heap.deallocate(heap.allocate(40 * kMib - 512, stream, heap.common_pool()));
    // A smaller block takes the first one's place in the magazine.
    heap.deallocate(heap.allocate(2 * kMib, stream, heap.common_pool()));
  }
  EXPECT_EQ(heap.stats().num_device_alloc, 2);
  heap.empty_cache();
}

TEST(OomReportTest, SaysWhatTorchSays) {
  constexpr std::int64_t kGib = std::int64_t{1} << 30;
  const auto mib = static_cast<std::int64_t>(kMib);
  const OomReport breakdown{.requested = 1997 * mib,
                            .total = 14920 * mib,
                            .free = 1618 * mib,
                            .allocated = kGib,
                            .reserved = kGib + 512 * mib,
                            .limit = 14920 * mib};
  EXPECT_EQ(
      out_of_memory_text(0, breakdown, true),
      "CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 14.57 "
      "GiB of which 1.58 GiB is free. Of the allocated memory 1.00 GiB is allocated by gantry, "
      "and 512.00 MiB is reserved by gantry but unallocated. 11.49 GiB is used by other "
      "processes or outside of this allocator.");
}

TEST(OomReportTest, GivesAdviceThatFits) {
  const auto mib = static_cast<std::int64_t>(kMib);
  OomReport breakdown{.requested = 100 * mib,
                      .total = 1000 * mib,
                      .free = 10 * mib,
                      .allocated = 500 * mib,
                      .reserved = 990 * mib,
                      .limit = 1000 * mib};
  EXPECT_THAT(out_of_memory_text(1, breakdown, true), HasSubstr("max_split_size_mb"));
  EXPECT_THAT(out_of_memory_text(1, breakdown, false),
              AllOf(Not(HasSubstr("max_split_size_mb")), HasSubstr("in pieces")));
  // The rest, 90 MiB in pieces, is less than the request.
  for (auto holder : {&OomReport::private_free, &OomReport::stream_free, &OomReport::pending,
                      &OomReport::limbo}) {
    breakdown.*holder = 400 * mib;
    EXPECT_THAT(out_of_memory_text(1, breakdown, true), Not(HasSubstr("max_split_size_mb")));
    EXPECT_THAT(out_of_memory_text(1, breakdown, false), Not(HasSubstr("in pieces")));
    breakdown.*holder = 0;
  }
  breakdown.released = 600 * mib;  // has no memory, so nothing else changes
  breakdown.allocated += breakdown.released;
  EXPECT_THAT(out_of_memory_text(1, breakdown, true),
              AllOf(HasSubstr("max_split_size_mb"), HasSubstr("490.00 MiB is reserved by")));
  breakdown.released = 0;
  breakdown.requested = 0;
  EXPECT_THAT(out_of_memory_text(1, breakdown, true), Not(HasSubstr("other processes")));
  breakdown.requested = 100 * mib;
  breakdown.allocated = breakdown.reserved;
  EXPECT_THAT(out_of_memory_text(1, breakdown, true),
              AllOf(Not(HasSubstr("max_split_size_mb")), Not(HasSubstr("set_fraction"))));
}

TEST(OomReportTest, NamesWhoStillUsesWhatIsFreed) {
  const auto mib = static_cast<std::int64_t>(kMib);
  OomReport breakdown{.requested = 100 * mib,
                      .total = 1000 * mib,
                      .free = 10 * mib,
                      .allocated = 900 * mib,
                      .reserved = 990 * mib,
                      .limit = 1000 * mib};
  EXPECT_THAT(out_of_memory_text(0, breakdown, false), Not(HasSubstr("still used")));
  breakdown.pending = 3 * mib;
  breakdown.pending_by_stream = {{3, 2 * mib}, {5, mib}};
  breakdown.limbo = 4 * mib;
  breakdown.limbo_by_process = {{4711, 4 * mib}};
  breakdown.private_pools = 5 * mib;
  breakdown.private_free = 2 * mib;
  breakdown.stream_free = mib;
  breakdown.top_call_sites = {{"train (train.cpp:7)", 6 * mib}};
  EXPECT_THAT(
      out_of_memory_text(0, breakdown, false),
      AllOf(HasSubstr("3.00 MiB is freed but still used: 2.00 MiB by stream 3, 1.00 MiB by stream "
                      "5."),
            HasSubstr("4.00 MiB is freed here but other processes have it imported: 4.00 MiB by "
                      "process 4711."),
            HasSubstr("1.00 MiB is free, but only for streams that still use it."),
            HasSubstr("5.00 MiB is reserved by private pools without use_on_oom and by graphs, "
                      "2.00 MiB of it unallocated."),
            HasSubstr("Most is used by: 6.00 MiB from train (train.cpp:7).")));
}

}  // namespace
}  // namespace gantry::memory
