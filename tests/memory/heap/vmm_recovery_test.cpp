// What backend vmm does when memory is short, step by step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <initializer_list>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/mem_pool.hpp>

#include "core/text/byte_count.hpp"
#include "memory/oom/oom_report.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::kKib;
using gantry::testing::kMib;
using gantry::testing::StreamHold;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class VmmRecoveryTest : public gantry::testing::HeapTest {};

TEST_F(VmmRecoveryTest, PiecesOfFreeMemoryServeALargeBlock) {
  const Stream stream = Stream::current();
  limit_to(80 * kMib);
  std::vector<Buffer> buffers;
  for (int i = 0; i < 8; ++i) buffers.push_back(allocate(stream, 10 * kMib));
  for (std::size_t i = 0; i < 8; i += 2) buffers[i].reset();
  const Buffer large = allocate(stream, 40 * kMib);
  EXPECT_EQ(reserved(), 80 * kMib);
  EXPECT_EQ(allocated(), 80 * kMib);
  EXPECT_EQ(stats().reclaimed_bytes, static_cast<std::int64_t>(40 * kMib));
  EXPECT_EQ(stats().num_ooms, 0);
}

// The free block that grows is the only one with enough chunks for the rest.
TEST_F(VmmRecoveryTest, TheBlockThatGrowsKeepsItsChunks) {
  const Stream stream = Stream::current();
  limit_to(70 * kMib);
  std::vector<Buffer> kept;
  std::vector<Buffer> pieces;
  for (int i = 0; i < 5; ++i) {
    pieces.push_back(allocate(stream, 2 * kMib));
    kept.push_back(allocate(stream, 4 * kMib));
  }
  Buffer last = allocate(stream, 40 * kMib);
  const void* place = last.data();
  last.reset();
  pieces.clear();
  const std::int64_t reclaimed = stats().reclaimed_bytes;
  const Buffer large = allocate(stream, 50 * kMib);
  EXPECT_EQ(large.data(), place);
  EXPECT_EQ(stats().reclaimed_bytes - reclaimed, static_cast<std::int64_t>(10 * kMib));
  EXPECT_EQ(reserved(), 70 * kMib);
}

class ReclaimedBlocksTest : public VmmRecoveryTest {
 protected:
  void TearDown() override {
    kept_.clear();
    VmmRecoveryTest::TearDown();
  }
  void keep(std::size_t bytes) { kept_.push_back(allocate(stream_, bytes)); }
  /// Blocks of these sizes that do not touch each other.
  std::vector<Buffer> separate(std::initializer_list<std::size_t> sizes) {
    std::vector<Buffer> blocks;
    for (const std::size_t bytes : sizes) {
      blocks.push_back(allocate(stream_, bytes));
      keep(2 * kMib);
    }
    return blocks;
  }
  /// Blocks of these sizes become free; after them a block of 20 MiB that can grow.
  void free_blocks_of(std::initializer_list<std::size_t> sizes) {
    std::vector<Buffer> freed = separate(sizes);
    freed.push_back(allocate(stream_, 20 * kMib));
    limit_to(reserved());
  }
  /// Frees the first ones, and after an event, which a miss records, the others.
  void free_in_turn(std::vector<Buffer> old, std::vector<Buffer> young) {
    old.clear();
    keep(40 * kMib);
    young.clear();
    stream_.synchronize();
    limit_to(reserved());
  }
  /// Bytes that recovery takes from free blocks for a request.
  std::int64_t reclaimed_for(std::size_t bytes) {
    const std::int64_t before = stats().reclaimed_bytes;
    keep(bytes);
    return stats().reclaimed_bytes - before;
  }

 private:
  const Stream stream_ = Stream::current();
  std::vector<Buffer> kept_;
};

TEST_F(ReclaimedBlocksTest, AreTheSmallestOnes) {
  free_blocks_of({40 * kMib, 16 * kMib, 16 * kMib});
  EXPECT_EQ(reclaimed_for(52 * kMib), static_cast<std::int64_t>(32 * kMib));
  EXPECT_EQ(reclaimed_for(40 * kMib), 0) << "the large block is whole";
}

TEST_F(ReclaimedBlocksTest, AreNoPiecesWhileALargerBlockTakesOneCall) {
  free_blocks_of({2 * kMib, 24 * kMib, 2 * kMib, 2 * kMib, 2 * kMib});
  const FaultDriver driver;
  EXPECT_EQ(reclaimed_for(28 * kMib), static_cast<std::int64_t>(8 * kMib));
  EXPECT_EQ(driver.calls("unmap"), 1u);
  EXPECT_EQ(reclaimed_for(16 * kMib), 0) << "what is left of the larger one";
}

TEST_F(ReclaimedBlocksTest, AreTheOldestOfTheSmallOnes) {
  std::vector<Buffer> old = separate({10 * kMib, 10 * kMib, 10 * kMib});
  free_in_turn(std::move(old), separate({8 * kMib, 12 * kMib}));
  EXPECT_EQ(reclaimed_for(30 * kMib), static_cast<std::int64_t>(30 * kMib));
  EXPECT_EQ(reclaimed_for(12 * kMib), 0) << "the largest is young";
  EXPECT_EQ(reclaimed_for(8 * kMib), 0) << "the smallest is young";
}

TEST_F(ReclaimedBlocksTest, AreNoOldPiecesWhileYoungBlocksTakeFewCalls) {
  std::vector<Buffer> old = separate({2 * kMib, 2 * kMib, 2 * kMib, 2 * kMib});
  free_in_turn(std::move(old), separate({10 * kMib, 10 * kMib}));
  const FaultDriver driver;
  EXPECT_EQ(reclaimed_for(20 * kMib), static_cast<std::int64_t>(20 * kMib));
  EXPECT_EQ(driver.calls("unmap"), 2u);
}

TEST_F(ReclaimedBlocksTest, AreTheSmallestOfOneAge) {
  free_in_turn({}, separate({8 * kMib, 14 * kMib, 8 * kMib, 14 * kMib, 8 * kMib}));
  EXPECT_EQ(reclaimed_for(24 * kMib), static_cast<std::int64_t>(24 * kMib));
  EXPECT_EQ(reclaimed_for(14 * kMib), 0);
  EXPECT_EQ(reclaimed_for(14 * kMib), 0) << "the larger ones are whole";
}

TEST_F(VmmRecoveryTest, SmallAndLargeBlocksShareTheSameMemory) {
  const Stream stream = Stream::current();
  limit_to(40 * kMib);
  {
    std::vector<Buffer> small;
    for (int i = 0; i < 36; ++i) small.push_back(allocate(stream, kMib));
  }
  { const Buffer large = allocate(stream, 40 * kMib); }
  std::vector<Buffer> small;
  for (int i = 0; i < 40; ++i) small.push_back(allocate(stream, kMib));
  EXPECT_EQ(reserved(), 40 * kMib);
}

TEST_F(VmmRecoveryTest, AnotherStreamsBlockIsTakenBehindAWait) {
  const Stream own = Stream::from_pool();
  const Stream other = Stream::from_pool();
  limit_to(32 * kMib);
  Buffer buffer = allocate(own, 32 * kMib);
  void* data = buffer.data();
  const StreamHold hold(own);
  driver().fill(data, 1, 1000, own.native());
  buffer.reset();
  const std::int64_t waits = stats().num_stream_waits;
  FaultDriver driver;
  const Buffer taken = allocate(other, 30 * kMib);  // the host does not wait for the hold
  EXPECT_EQ(taken.data(), data);
  EXPECT_EQ(driver.calls("wait_event"), 1u);
  EXPECT_EQ(driver.calls("synchronize_event"), 0u);
  EXPECT_EQ(stats().num_stream_waits, waits + 1);
}

TEST_F(VmmRecoveryTest, WaitsForRecordedStreamsOnlyWhenNothingElseHelps) {
  const Stream own = Stream::current();
  const Stream user = Stream::from_pool();
  limit_to(32 * kMib);
  Buffer buffer = allocate(own, 32 * kMib);
  std::optional<StreamHold> hold(user);
  allocator(Device::cuda(0)).record_stream(buffer.block(), user);
  buffer.reset();
  FaultDriver driver;
  std::thread releaser([&] {
    // Lets go only when the allocator is seen to wait.
    while (driver.calls("synchronize_event") == 0) std::this_thread::yield();
    hold->release();
  });
  const Buffer again = allocate(own, 32 * kMib);
  releaser.join();
  EXPECT_EQ(driver.calls("unmap"), 0u) << "a fitting block was taken apart";
}

TEST_F(VmmRecoveryTest, CapturedStreamsAreNotWaitedFor) {
  const Stream captured = Stream::from_pool();
  const Stream busy = Stream::from_pool();
  const Stream own = Stream::from_pool();
  limit_to(66 * kMib);
  Buffer kept = allocate(captured, 32 * kMib);
  Buffer buffer = allocate(busy, 34 * kMib);
  void* data = buffer.data();
  kept.reset();  // nobody asked the stream how far it is, and now nobody may
  driver().begin_capture(captured.native(), CaptureMode::relaxed);
  std::optional<StreamHold> hold(busy);
  buffer.reset();
  {
    FaultDriver driver;
    std::atomic<bool> over{false};
    std::thread releaser([&] {
      while (driver.calls("synchronize_event") == 0 && !over) std::this_thread::yield();
      hold->release();
    });
    Buffer again;
    EXPECT_NO_THROW(again = allocate(own, 32 * kMib));
    over = true;
    releaser.join();
    EXPECT_EQ(again.data(), data);
    EXPECT_THROW(static_cast<void>(allocate(own, 20 * kMib)), OutOfMemoryError);
    EXPECT_NO_THROW(empty_cache());
  }
  gantry::driver().destroy_graph(gantry::driver().end_capture(captured.native()));
  empty_cache();
  EXPECT_EQ(reserved(), 0u);
}

// A capture in global mode forbids all threads what might not be captured rightly.
TEST_F(VmmRecoveryTest, WaitingSpoilsNoCapture) {
  const Stream captured = Stream::from_pool();
  const Stream own = Stream::current();
  const Stream user = Stream::from_pool();
  limit_to(34 * kMib);
  Buffer buffer = allocate(own, 32 * kMib);
  std::optional<StreamHold> hold(user);
  allocator(Device::cuda(0)).record_stream(buffer.block(), user);
  buffer.reset();
  FaultDriver driver;
  driver.begin_capture(captured.native(), CaptureMode::global);
  std::thread other([&] {
    while (driver.calls("synchronize_event") == 0) std::this_thread::yield();
    hold->release();
  });
  std::thread([&] { EXPECT_NO_THROW(static_cast<void>(allocate(own, 32 * kMib))); }).join();
  other.join();
  driver.destroy_graph(driver.end_capture(captured.native()));
}

// However many others of its bin were freed after it.
TEST_F(VmmRecoveryTest, ABlockThatFitsIsFoundAtLast) {
  const Stream stream = Stream::current();
  limit_to(64 * kMib);
  constexpr std::size_t kFits = kMib + 31 * kKib;
  std::vector<Buffer> rest;
  std::vector<Buffer> smaller;
  Buffer wanted = allocate(stream, kFits);
  rest.push_back(allocate(stream, 40 * kKib));
  for (int i = 0; i < 24; ++i) {
    smaller.push_back(allocate(stream, kMib + kKib));
    rest.push_back(allocate(stream, 40 * kKib));
  }
  for (const std::size_t bytes : {8 * kMib, kMib, 64 * kKib, kKib / 2}) {
    try {
      for (;;) rest.push_back(allocate(stream, bytes));
    } catch (const OutOfMemoryError&) {
    }
  }
  for (std::size_t i = 0; i < 12; ++i) smaller[i].reset();
  wanted.reset();
  smaller.clear();
  stream.synchronize();
  EXPECT_NO_THROW(wanted = allocate(stream, kFits));
}

TEST_F(VmmRecoveryTest, OtherThreadsAllocateWhileOneWaits) {
  const Stream own = Stream::current();
  const Stream user = Stream::from_pool();
  limit_to(34 * kMib);
  Buffer small = allocate(own, 300 * kKib);
  Buffer buffer = allocate(own, 32 * kMib);
  std::optional<StreamHold> hold(user);
  allocator(Device::cuda(0)).record_stream(buffer.block(), user);
  buffer.reset();
  FaultDriver driver;
  std::thread other([&] {
    while (driver.calls("synchronize_event") == 0) std::this_thread::yield();
    small = allocate(own, 400 * kKib);  // the wait ends only after this
    hold->release();
  });
  const Buffer again = allocate(own, 32 * kMib);
  other.join();
  EXPECT_NE(again.data(), nullptr);
}

TEST_F(VmmRecoveryTest, MagazinesOfOtherThreadsAreEmptied) {
  const Stream stream = Stream::current();
  limit_to(4 * kMib);
  std::vector<Buffer> small;
  for (int i = 0; i < 128; ++i) small.push_back(allocate(stream, 32 * kKib));
  std::optional<Buffer> large;
  std::thread other([&] {
    small.clear();  // into this thread's magazines
    std::thread third([&] { large = allocate(stream, 4 * kMib); });
    third.join();
  });
  other.join();
  EXPECT_EQ(large->bytes(), 4 * kMib);
  EXPECT_EQ(reserved(), 4 * kMib);
}

TEST_F(VmmRecoveryTest, WhatOthersFreeIntoTheirCachesDuringAWaitIsFound) {
  const Stream stream = Stream::current();
  const Stream user = Stream::from_pool();
  limit_to(40 * kMib);
  std::optional<Buffer> kept = allocate(stream, 16 * kMib);
  Buffer used = allocate(stream, 20 * kMib);
  StreamHold hold(user);
  allocator(Device::cuda(0)).record_stream(used.block(), user);
  used.reset();
  const FaultDriver driver;
  std::optional<Buffer> large;
  std::thread other([&] { large = allocate(stream, 36 * kMib); });
  while (driver.calls("synchronize_event") == 0) std::this_thread::yield();
  kept.reset();  // into this thread's magazines
  hold.release();
  other.join();
  EXPECT_EQ(large->bytes(), 36 * kMib);
}

TEST_F(VmmRecoveryTest, RequestsThatCannotBeServedDisturbNobody) {
  const Stream stream = Stream::current();
  limit_to(768 * kMib);
  const Buffer kept = allocate(stream, 300 * kMib);
  std::atomic<bool> done{false};
  std::atomic<int> refusals{0};
  std::vector<std::thread> greedy;
  for (int i = 0; i < 3; ++i) {
    greedy.emplace_back([&] {
      for (; !done; ++refusals) {
        EXPECT_THROW(static_cast<void>(allocate(stream, 700 * kMib)), OutOfMemoryError);
      }
    });
  }
  for (int i = 0; (i < 100 || refusals < 100) && !HasFailure(); ++i) {
    EXPECT_NO_THROW(static_cast<void>(allocate(stream, 225 * kMib))) << i;
    // Under AddressSanitizer each block is poisoned in the stream, and refusals wait for that.
    stream.synchronize();
  }
  done = true;
  for (std::thread& thread : greedy) thread.join();
}

TEST_F(VmmRecoveryTest, ReportsWhatIsHeldAndStaysUsable) {
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
    EXPECT_EQ(breakdown.limit, static_cast<std::int64_t>(64 * kMib));
    EXPECT_EQ(breakdown.total, static_cast<std::int64_t>(mem_get_info().total));
    EXPECT_EQ(breakdown.pending, 0);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("CUDA out of memory. Tried to allocate 30.00 MiB."),
                                    HasSubstr("64.00 MiB allowed"), HasSubstr("set_fraction"),
                                    Not(HasSubstr("max_split_size_mb"))));
  }
  EXPECT_EQ(stats().num_ooms, ooms + 1);
  const Buffer fits = allocate(stream, 20 * kMib);
  EXPECT_EQ(allocated(), 60 * kMib);
}

TEST_F(VmmRecoveryTest, ReportsPrivatePools) {
  const Stream stream = Stream::current();
  limit_to(64 * kMib);
  MemPool pool;
  const Buffer own = pool.allocate(stream, 10 * kMib);
  const Buffer live = allocate(stream, 40 * kMib);
  try {
    static_cast<void>(allocate(stream, 30 * kMib));
    ADD_FAILURE() << "more than the limit was allocated";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.breakdown().private_pools, static_cast<std::int64_t>(10 * kMib));
    EXPECT_THAT(error.what(), HasSubstr("10.00 MiB is reserved by private pools"));
  }
}

TEST_F(VmmRecoveryTest, ErrorNamesPoolsWithIdleMemory) {
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

TEST_F(VmmRecoveryTest, BlocksOfReleasedPoolsCountAsReleased) {
  const Stream stream = Stream::current();
  limit_to(64 * kMib);
  MemPool pool;
  const Buffer released = pool.allocate(stream, 30 * kMib);
  pool.release_physical();
  const Buffer live = allocate(stream, 40 * kMib);
  try {
    static_cast<void>(allocate(stream, 30 * kMib));
    ADD_FAILURE() << "more than the limit was allocated";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.breakdown().released, static_cast<std::int64_t>(30 * kMib));
    EXPECT_EQ(error.breakdown().private_pools, 0);
    EXPECT_EQ(error.breakdown().allocated, static_cast<std::int64_t>(70 * kMib));
    EXPECT_THAT(
        error.what(),
        AllOf(
            HasSubstr("40.00 MiB is allocated by gantry, and 0 bytes is reserved by "
                      "gantry but unallocated."),
            HasSubstr("30.00 MiB of live blocks is in pools that released their physical memory."),
            Not(HasSubstr("private pools"))));
  }
}

TEST_F(VmmRecoveryTest, AFailedGrowthLeavesNothingBehind) {
  const Stream stream = Stream::current();
  for (const char* call : {"create_chunk", "map_chunk", "set_access"}) {
    for (std::uint64_t nth = 1; nth <= 3; ++nth) {
      FaultDriver faults;
      faults.fail_on(call, nth, gantry::testing::kUnknown);
      try {
        static_cast<void>(allocate(stream, 6 * kMib));
      } catch (const Error&) {
      }
      faults.fail_nothing();
      EXPECT_EQ(stats().segment.all.current,
                stats().unmapped_bytes == static_cast<std::int64_t>(reserved()) ? 0 : 1);
      const Buffer works = allocate(stream, 6 * kMib);
      EXPECT_EQ(reserved(), 6 * kMib) << call << " " << nth;
    }
    empty_cache();
  }
}

TEST_F(VmmRecoveryTest, EmptyCacheEndsWhileOthersWork) {
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    const Stream stream = Stream::from_pool(Device::cuda(0));
    while (!stop) {
      const Buffer first = allocate(stream, 3 * kMib);
      const Buffer second = allocate(stream, 2 * kMib);
      driver().fill(first.data(), 1, first.bytes(), stream.native());
      driver().fill(second.data(), 1, second.bytes(), stream.native());
    }
  });
  for (int i = 0; i < 50; ++i) empty_cache();
  stop = true;
  worker.join();
}

TEST_F(VmmRecoveryTest, PassesOtherDriverErrorsOn) {
  FaultDriver faults;
  faults.fail_on("map_chunk", 1, gantry::testing::kIllegalAddress);
  EXPECT_THROW(static_cast<void>(allocate(Stream::current(), 1000)), CudaError);
  faults.fail_nothing();
  empty_cache();
  EXPECT_EQ(reserved(), 0u);
}

}  // namespace
}  // namespace gantry::memory
