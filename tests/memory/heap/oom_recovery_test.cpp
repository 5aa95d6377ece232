// The steps by which a heap finds memory that no free block gives.
#include "memory/heap/oom_recovery.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/memory/heap/heap_parts.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::HeapKind;
using gantry::testing::HeapParts;
using gantry::testing::kHeapKinds;
using gantry::testing::kMib;
using gantry::testing::StreamHold;

// A segment of its own, and whole chunks.
constexpr std::size_t kBytes = 12 * kMib;

// Lets the oldest hold go whenever the host begins to wait for an event.
class ReleasingDriver final : public FaultDriver {
 public:
  void synchronize_event(NativeEvent event) override {
    if (!holds.empty()) holds.pop_front();
    FaultDriver::synchronize_event(event);
  }

  std::deque<StreamHold> holds;
};

// Has memory for some waits.
class Neighbour final : public MemoryNeighbour {
 public:
  explicit Neighbour(int most) : most_(most) {}

  [[nodiscard]] bool release_after_wait(HostWait wait) override {
    waits.push_back(wait);
    if (on_wait) on_wait();
    return static_cast<int>(waits.size()) <= most_;
  }

  std::vector<HostWait> waits;
  std::function<void()> on_wait;

 private:
  const int most_;
};

class OomRecoveryTest : public gantry::testing::DeviceTest,
                        public ::testing::WithParamInterface<HeapKind> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    GANTRY_REQUIRE_DEVICES(3);
    parts_.emplace(GetParam().device, GetParam().backing);
  }
  void TearDown() override {
    if (parts_) parts_->recovery.set_neighbour(nullptr);
    parts_.reset();
    DeviceTest::TearDown();
  }
  [[nodiscard]] HeapParts& parts() { return *parts_; }
  [[nodiscard]] static Stream stream() {
    return Stream::from_pool(Device::cuda(GetParam().device));
  }

 private:
  std::optional<HeapParts> parts_;
};
INSTANTIATE_TEST_SUITE_P(Heaps, OomRecoveryTest, kHeapKinds, gantry::testing::name_of);

TEST_P(OomRecoveryTest, TheHeapGrowsOnlyWhereNothingIsFree) {
  parts().limit_to(3 * kBytes);
  const Stream first = stream();
  const Stream second = stream();
  HeapBlock& made = parts().allocate(kBytes, first);
  EXPECT_EQ(parts().state.reserved(), kBytes);
  std::byte* const data = made.data;
  parts().free(made);
  // The first stream has no work, which recovery finds out.
  HeapBlock& again = parts().allocate(kBytes, second);
  EXPECT_EQ(again.data, data);
  EXPECT_EQ(parts().state.reserved(), kBytes);
  HeapBlock& other = parts().allocate(kBytes, second);
  EXPECT_EQ(parts().state.reserved(), 2 * kBytes);
  EXPECT_EQ(parts().collect().num_alloc_retries, 0);
  parts().free(again);
  parts().free(other);
}

TEST_P(OomRecoveryTest, AnotherStreamsBlockServesBehindAWaitOnceTheHeapCannotGrow) {
  parts().limit_to(2 * kBytes);
  const Stream busy = stream();
  const Stream own = stream();
  HeapBlock& freed = parts().allocate(kBytes, busy);
  std::byte* const data = freed.data;
  std::optional<StreamHold> hold(busy);
  parts().free(freed);
  HeapBlock& grown = parts().allocate(kBytes, own);
  EXPECT_NE(grown.data, data);
  EXPECT_EQ(parts().collect().num_stream_waits, 0);
  HeapBlock& waiting = parts().allocate(kBytes, own);
  EXPECT_EQ(waiting.data, data);
  EXPECT_EQ(parts().collect().num_stream_waits, 1);
  EXPECT_EQ(parts().collect().num_sync_all_streams, 0) << "the host waited";
  EXPECT_FALSE(own.query()) << "the stream does not wait";
  hold.reset();
  own.synchronize();
  parts().free(grown);
  parts().free(waiting);
}

TEST_P(OomRecoveryTest, OtherPoolsServeIfTheyAllowIt) {
  parts().limit_to(2 * kBytes);
  const Stream own = stream();
  Pool& shared = parts().pools.make({.use_on_oom = true});
  Pool& closed = parts().pools.make({});
  HeapBlock& theirs = parts().allocate(kBytes, own, closed);
  HeapBlock& common = parts().allocate(kBytes, own);
  parts().free(theirs);
  EXPECT_THROW(static_cast<void>(parts().allocate(kBytes, own, shared)), OutOfMemoryError);
  EXPECT_EQ(parts().collect().num_ooms, 1);
  parts().free(common);
  HeapBlock& taken = parts().allocate(kBytes, own, shared);
  EXPECT_EQ(parts().state.reserved(), 2 * kBytes);
  EXPECT_THROW(static_cast<void>(parts().allocate(kBytes, own)), OutOfMemoryError);
  HeapBlock& again = parts().allocate(kBytes, own, closed);
  for (HeapBlock* block : {&taken, &again}) parts().free(*block);
}

TEST_P(OomRecoveryTest, TheHostWaitsForOneUseAtATime) {
  ReleasingDriver driver;
  parts().limit_to(3 * kBytes);
  const Stream own = stream();
  std::vector<HeapBlock*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(&parts().allocate(kBytes, own));
  for (HeapBlock* block : blocks) {
    const Stream user = stream();
    driver.holds.emplace_back(user);
    parts().record_use(*block, user);
    parts().free(*block);
  }
  blocks.clear();
  for (std::size_t left = 3; left-- > 0;) {
    blocks.push_back(&parts().allocate(kBytes, own));
    EXPECT_EQ(driver.holds.size(), left);
    EXPECT_EQ(parts().pools.common().deferred.empty(), left == 0);
  }
  EXPECT_EQ(parts().collect().num_sync_all_streams, 3);
  EXPECT_THROW(static_cast<void>(parts().allocate(kBytes, own)), OutOfMemoryError);
  for (HeapBlock* block : blocks) parts().free(*block);
}

TEST_P(OomRecoveryTest, TheNeighbourIsAskedUntilItHasNothing) {
  parts().limit_to(kBytes);
  const Stream own = stream();
  HeapBlock* live = &parts().allocate(kBytes, own);
  for (const int most : {0, 1, 3}) {
    SCOPED_TRACE(most);
    Neighbour neighbour(most);
    parts().recovery.set_neighbour(&neighbour);
    EXPECT_THROW(static_cast<void>(parts().allocate(kBytes, own)), OutOfMemoryError);
    EXPECT_EQ(neighbour.waits.size(), static_cast<std::size_t>(most) + 1);
    EXPECT_THAT(neighbour.waits, ::testing::Each(HostWait::anyhow));
  }
  // It frees memory in its second wait, for which it needs the lock.
  Neighbour neighbour(3);
  neighbour.on_wait = [&] {
    if (neighbour.waits.size() == 2) parts().free(*std::exchange(live, nullptr));
  };
  parts().recovery.set_neighbour(&neighbour);
  HeapBlock& served = parts().allocate(kBytes, own);
  EXPECT_EQ(neighbour.waits.size(), 2u);
  parts().free(served);
}

TEST_P(OomRecoveryTest, ARequestOfACaptureWaitsOnlyBehindEvents) {
  parts().limit_to(kBytes);
  const Stream own = stream();
  Pool& pool = parts().pools.assign(std::make_shared<const Capture>());
  HeapBlock& live = parts().allocate(kBytes, own, pool);
  Neighbour neighbour(1);
  parts().recovery.set_neighbour(&neighbour);
  EXPECT_THROW(static_cast<void>(parts().allocate(kBytes, own, pool)), OutOfMemoryError);
  EXPECT_THAT(neighbour.waits,
              ::testing::ElementsAre(HostWait::behind_event, HostWait::behind_event));
  parts().free(live);
}

// Two free blocks of which neither is large enough, beside one in use.
TEST_P(OomRecoveryTest, IdleMemoryOfPoolsThatKeepItDoesNotCountAgainstTheBound) {
  const Stream own = stream();
  Pool& closed = parts().pools.make({});
  std::vector<HeapBlock*> idle;
  for (int i = 0; i < 4; ++i) idle.push_back(&parts().allocate(kBytes, own, closed));
  for (HeapBlock* block : idle) parts().free(*block);
  parts().recovery.reset_bound();
  HeapBlock& left = parts().allocate(kBytes, own);
  HeapBlock& live = parts().allocate(kBytes, own);
  HeapBlock& right = parts().allocate(kBytes, own);
  for (HeapBlock* block : {&left, &right}) parts().free(*block);
  const std::size_t before = parts().state.reserved();
  HeapBlock& larger = parts().allocate(2 * kBytes, own);
  EXPECT_GT(parts().state.reserved(), before) << "the common pool is within its bound";
  EXPECT_EQ(parts().collect().reclaimed_bytes, 0);
  EXPECT_EQ(parts().collect().num_device_free, 0);
  for (HeapBlock* block : {&live, &larger}) parts().free(*block);
}

TEST_P(OomRecoveryTest, WhatBecomesFreeDuringTheLastWaitServesInPieces) {
  parts().limit_to(3 * kBytes);
  const Stream own = stream();
  HeapBlock& left = parts().allocate(kBytes, own);
  HeapBlock& live = parts().allocate(kBytes, own);
  HeapBlock& right = parts().allocate(kBytes, own);
  Neighbour neighbour(0);
  neighbour.on_wait = [&] {
    for (HeapBlock* block : {&left, &right}) parts().free(*block);
    const HeapLock lock(parts().state.mutex);
    parts().frees.poll();
  };
  parts().recovery.set_neighbour(&neighbour);
  HeapBlock& served = parts().allocate(2 * kBytes, own);
  EXPECT_EQ(neighbour.waits.size(), 1u);
  EXPECT_EQ(parts().state.reserved(), 3 * kBytes);
  for (HeapBlock* block : {&live, &served}) parts().free(*block);
}

TEST_P(OomRecoveryTest, ADriverThatFailsOnTheWayLeavesTheHeapAsItWas) {
  FaultDriver driver;
  parts().limit_to(2 * kBytes);
  const Stream own = stream();
  HeapBlock& kept = parts().allocate(kBytes, own);
  const bool has_chunks = GetParam().backing == HeapBacking::vmm;
  const std::vector<const char*> calls =
      has_chunks ? std::vector{"create_chunk", "map_chunk", "set_access"} : std::vector{"allocate"};
  for (const char* call : calls) {
    SCOPED_TRACE(call);
    // A later chunk of the request, where there are several.
    driver.fail_on(call, call == std::string_view("set_access") || !has_chunks ? 1 : 2);
    EXPECT_THROW(static_cast<void>(parts().allocate(kBytes, own)), CudaError);
    parts().verify();
    EXPECT_EQ(parts().pools.common().live_blocks, 1);
    EXPECT_EQ(parts().collect().num_ooms, 0);
  }
  driver.fail_nothing();
  HeapBlock& served = parts().allocate(kBytes, own);
  EXPECT_EQ(parts().state.reserved(), 2 * kBytes);
  for (HeapBlock* block : {&kept, &served}) parts().free(*block);
}

TEST_P(OomRecoveryTest, OnlyAnOutOfMemoryEventIsCounted) {
  parts().limit_to(2 * kBytes);
  HeapBlock& live = parts().allocate(kBytes, stream());
  const auto expect_report = [&](auto&& report) {
    HeapLock lock(parts().state.mutex);
    try {
      report(lock);
      FAIL() << "nothing was thrown";
    } catch (const OutOfMemoryError& error) {
      EXPECT_FALSE(lock.owns_lock());
      EXPECT_EQ(error.device(), Device::cuda(GetParam().device).str());
      EXPECT_EQ(error.breakdown().requested, static_cast<std::int64_t>(3 * kBytes));
      EXPECT_EQ(error.breakdown().allocated, static_cast<std::int64_t>(kBytes));
      EXPECT_EQ(error.breakdown().reserved, static_cast<std::int64_t>(kBytes));
      EXPECT_EQ(error.breakdown().limit, static_cast<std::int64_t>(2 * kBytes));
    }
  };
  expect_report([&](HeapLock& lock) { parts().recovery.report_unrestored(lock, 3 * kBytes); });
  EXPECT_EQ(parts().collect().num_ooms, 0);
  for (int reports = 1; reports <= 2; ++reports) {
    expect_report([&](HeapLock& lock) { parts().recovery.report(lock, 3 * kBytes, 0, {}); });
    EXPECT_EQ(parts().collect().num_ooms, reports);
  }
  parts().free(live);
}

}  // namespace
}  // namespace gantry::memory
