// The pools of a heap: which one is made, found, taken over and reclaimed from.
#include "memory/heap/pool_set.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gantry/memory/cpu_allocator.hpp>

#include "streams/capture.hpp"
#include "tests/memory/heap/heap_parts.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::HeapKind;
using gantry::testing::HeapParts;
using gantry::testing::kHeapKinds;
using gantry::testing::kMib;
using gantry::testing::StreamHold;

// A segment of its own, and whole chunks.
constexpr std::size_t kBytes = 12 * kMib;

class PoolSetTest : public gantry::testing::DeviceTest,
                    public ::testing::WithParamInterface<HeapKind> {
 protected:
  // A capture whose graph exists until end().
  class Captured {
   public:
    explicit Captured(const Stream& stream) : capture(begin_capture(stream, CaptureMode::relaxed)) {
      graph_ = driver().end_capture(stream.native());
    }
    ~Captured() { end(); }
    Captured(const Captured&) = delete;
    Captured& operator=(const Captured&) = delete;
    void end() {
      if (graph_ != nullptr) driver().destroy_graph(std::exchange(graph_, nullptr));
    }

    const std::shared_ptr<const Capture> capture;

   private:
    NativeGraph graph_ = nullptr;
  };

  void SetUp() override {
    DeviceTest::SetUp();
    GANTRY_REQUIRE_DEVICES(3);
    parts_.emplace(GetParam().device, GetParam().backing);
    parts_->limit_to(16 * kBytes);
  }
  void TearDown() override {
    parts_.reset();
    DeviceTest::TearDown();
  }
  [[nodiscard]] HeapParts& parts() { return *parts_; }
  [[nodiscard]] PoolSet& pools() { return parts_->pools; }
  [[nodiscard]] static Stream stream() {
    return Stream::from_pool(Device::cuda(GetParam().device));
  }

  // Leaves `bytes` in each pool that no stream uses.
  void fill(const std::vector<Pool*>& of, std::size_t bytes = kBytes) {
    const Stream own = stream();
    std::vector<HeapBlock*> blocks;
    for (Pool* pool : of) blocks.push_back(&parts().allocate(bytes, own, *pool));
    for (HeapBlock* block : blocks) parts().free(*block);
    poll();
  }
  void poll() {
    const HeapLock lock(parts().state.mutex);
    parts().frees.poll();
  }
  std::size_t reclaim(std::size_t bytes, const Pool* only = nullptr) {
    HeapLock lock(parts().state.mutex);
    const std::size_t taken = pools().reclaim(lock, bytes, only);
    parts().state.release_unmapped(lock, ~std::size_t{0});
    return taken;
  }
  [[nodiscard]] static std::size_t held(const Pool& pool) {
    std::size_t bytes = 0;
    for (const auto& arena : pool.arenas) bytes += arena->verify();
    return bytes;
  }

 private:
  std::optional<HeapParts> parts_;
};
INSTANTIATE_TEST_SUITE_P(Heaps, PoolSetTest, kHeapKinds, gantry::testing::name_of);

TEST_P(PoolSetTest, TheCommonPoolIsThereFromTheBeginning) {
  EXPECT_EQ(pools().end() - pools().begin(), 1);
  EXPECT_EQ(pools().common().id, 0u);
  EXPECT_TRUE(pools().common().serves_others());
  EXPECT_EQ(pools().common().backing, GetParam().backing);
  EXPECT_EQ(pools().backing(), GetParam().backing);
  EXPECT_EQ(pools().largest_free(), 0u);
  EXPECT_FALSE(pools().has_releasable());
  EXPECT_EQ(reclaim(kBytes), 0u);
}

TEST_P(PoolSetTest, ADestroyedPoolWithoutLiveBlocksIsMadeAgain) {
  std::vector<Pool*> made;
  for (int i = 0; i < 3; ++i) made.push_back(&pools().make({}));
  for (std::size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i]->id, i + 1);
  HeapBlock& live = parts().allocate(kBytes, stream(), *made[1]);
  for (const std::size_t i : {1, 2}) made[i]->destroyed = true;
  Pool& again = pools().make({.use_on_oom = true, .no_split = true});
  EXPECT_EQ(&again, made[2]);
  EXPECT_FALSE(again.destroyed);
  EXPECT_TRUE(again.serves_others());
  EXPECT_TRUE(again.options.no_split);
  EXPECT_EQ(pools().make({}).id, 4u);
  parts().free(live);
  EXPECT_EQ(&pools().make({}), made[1]);
}

TEST_P(PoolSetTest, APoolOfAnAllocatorHasSegmentsAndIsMadeAgainForAnother) {
  const std::shared_ptr<Allocator> source(&cpu_allocator(), [](Allocator*) {});
  Pool& plain = pools().make({});
  Pool& of_allocator = pools().make({.allocator = source});
  EXPECT_EQ(of_allocator.backing, HeapBacking::segments);
  for (Pool* pool : {&plain, &of_allocator}) pool->destroyed = true;
  const bool are_alike = GetParam().backing == HeapBacking::segments;
  EXPECT_EQ(&pools().make({.allocator = source}), are_alike ? &plain : &of_allocator);
  EXPECT_EQ(&pools().make({}), are_alike ? &of_allocator : &plain);
}

TEST_P(PoolSetTest, EveryCaptureHasAPoolOfItsOwnWhileItsGraphExists) {
  Captured first(stream());
  Captured second(stream());
  Captured third(stream());
  EXPECT_EQ(pools().find(first.capture), nullptr);
  std::vector<Pool*> assigned;
  for (const Captured* one : {&first, &second, &third}) {
    assigned.push_back(&pools().assign(one->capture));
    EXPECT_TRUE(assigned.back()->serves_captures);
    EXPECT_TRUE(assigned.back()->is_pinned());
  }
  EXPECT_NE(assigned[0], assigned[1]);
  EXPECT_NE(assigned[1], assigned[2]);
  EXPECT_EQ(pools().find(first.capture), assigned[0]);
  EXPECT_EQ(pools().find(third.capture), assigned[2]);
  EXPECT_FALSE(pools().make({}).serves_captures);
  second.end();
  Captured fourth(stream());
  EXPECT_EQ(&pools().assign(fourth.capture), assigned[1]);
  EXPECT_EQ(pools().find(second.capture), nullptr);
  EXPECT_EQ(pools().find(fourth.capture), assigned[1]);
}

TEST_P(PoolSetTest, ACaptureTakesOverOnlyAnIdlePool) {
  const Stream own = stream();
  const Stream user = stream();
  Pool& before = pools().assign(std::make_shared<const Capture>());
  HeapBlock& block = parts().allocate(kBytes, own, before);
  EXPECT_NE(&pools().assign(std::make_shared<const Capture>()), &before) << "with a live block";
  std::optional<StreamHold> hold(user);
  parts().record_use(block, user);
  parts().free(block);
  // The pool of the capture above is idle, so each of these captures gets that one.
  Pool& idle = pools().assign(std::make_shared<const Capture>());
  EXPECT_NE(&idle, &before) << "with a pending block";
  hold.reset();
  user.synchronize();
  hold.emplace(own);
  poll();
  EXPECT_EQ(&pools().assign(std::make_shared<const Capture>()), &idle) << "its stream has work";
  hold.reset();
  own.synchronize();
  poll();
  EXPECT_EQ(&pools().assign(std::make_shared<const Capture>()), &before);
}

TEST_P(PoolSetTest, ReclaimTakesFromTheCommonPoolFirstAndFromNoneThatForbidsIt) {
  Pool& closed = pools().make({});
  Pool& open = pools().make({.use_on_oom = true});
  fill({&closed, &open, &pools().common()});
  EXPECT_TRUE(parts().state.reserved() == 3 * kBytes);
  EXPECT_EQ(reclaim(kBytes), kBytes);
  EXPECT_EQ(held(pools().common()), 0u);
  EXPECT_EQ(held(open), kBytes);
  EXPECT_EQ(reclaim(8 * kBytes), kBytes);
  EXPECT_EQ(held(open), 0u);
  EXPECT_EQ(held(closed), kBytes);
  EXPECT_FALSE(pools().has_releasable());
  EXPECT_EQ(reclaim(kBytes), 0u);
  EXPECT_EQ(reclaim(kBytes, &open), 0u);
  EXPECT_EQ(reclaim(kBytes, &closed), kBytes);
  EXPECT_EQ(parts().state.reserved(), 0u);
}

TEST_P(PoolSetTest, ReclaimTakesNoMoreThanIsMissing) {
  Pool& open = pools().make({.use_on_oom = true});
  fill({&pools().common(), &open, &open});
  EXPECT_EQ(pools().has_releasable(), GetParam().backing == HeapBacking::segments);
  EXPECT_EQ(reclaim(2 * kBytes), 2 * kBytes);
  EXPECT_EQ(held(pools().common()), 0u);
  EXPECT_EQ(held(open), kBytes);
}

TEST_P(PoolSetTest, TheMemoryOfAGraphStaysUntilItsEnd) {
  Captured graph(stream());
  Pool& pool = pools().assign(graph.capture);
  fill({&pool});
  EXPECT_EQ(pools().largest_free(), 0u);
  EXPECT_FALSE(pools().has_releasable());
  EXPECT_EQ(reclaim(kBytes), 0u);
  EXPECT_EQ(reclaim(kBytes, &pool), 0u);
  graph.end();
  poll();
  EXPECT_EQ(pools().largest_free(), kBytes);
  EXPECT_EQ(pools().has_releasable(), GetParam().backing == HeapBacking::segments);
  EXPECT_EQ(reclaim(kBytes), kBytes);
}

TEST_P(PoolSetTest, TheLargestFreeBlockIsThatOfAnyPool) {
  Pool& closed = pools().make({});
  Pool& second = pools().make({});
  fill({&pools().common()});
  EXPECT_EQ(pools().largest_free(), kBytes);
  fill({&second}, 3 * kBytes);
  EXPECT_EQ(pools().largest_free(), 3 * kBytes);
  fill({&closed}, 2 * kBytes);
  EXPECT_EQ(pools().largest_free(), 3 * kBytes);
  second.released = true;
  EXPECT_EQ(pools().largest_free(), 2 * kBytes);
  EXPECT_EQ(reclaim(kBytes, &second), 0u) << "of a pool without physical memory";
  second.released = false;
}

#ifndef NDEBUG
using PoolSetDeathTest = PoolSetTest;
INSTANTIATE_TEST_SUITE_P(Heaps, PoolSetDeathTest, kHeapKinds, gantry::testing::name_of);

TEST_P(PoolSetDeathTest, VerifyFindsWhatIsBroken) {
  Pool& pool = pools().make({});
  const auto expect_death = [this](auto& member, auto broken, const char* text) {
    const auto right = std::exchange(member, broken);
    EXPECT_DEATH(pools().verify(), text);
    member = right;
  };
  expect_death(pool.live_blocks, std::int64_t{1}, "how many blocks are live");
  expect_death(pool.id, std::uint64_t{0}, "the number of another one");
  expect_death(pool.capture, std::make_shared<const Capture>(), "not the only one for it");
  pools().verify();
}
#endif

}  // namespace
}  // namespace gantry::memory
