// Freed blocks that streams still use, or graphs may use, without memory.
#include "memory/blocks/deferred_frees.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

#include "memory/blocks/free_blocks.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::StreamHold;

class DeferredFreesTest : public gantry::testing::DeviceTest {
 protected:
  /// A block of `own` that streams use up to its free, which is now. False: no use is left.
  bool free_block(HeapBlock& block, const std::vector<Stream>& users) {
    return free_block_of(own, block, users);
  }
  bool free_block_of(StreamBlocks& owner, HeapBlock& block, const std::vector<Stream>& users) {
    block.bytes = 512;
    block.stream = &owner;
    block.use.store(BlockUse::in_transition);
    for (const Stream& user : users) deferred.add_use(block, StreamClock::of(user), 0);
    DeferredFrees::freeze_uses(block);
    DeferredFrees::cover_uses(block);
    return deferred.enqueue(block);
  }
  std::vector<HeapBlock*> promoted() {
    deferred.poll();
    std::vector<HeapBlock*> done;
    (void)deferred.promote_completed([&](HeapBlock& block) { done.push_back(&block); });
    deferred.verify();
    return done;
  }

  BlockSlab slab;
  FreeBlocks blocks{slab, {}, true};
  StreamBlocks& own = blocks.of(Stream::from_pool());
  DeferredFrees deferred;
};

TEST_F(DeferredFreesTest, ABlockWaitsForEachOfItsStreams) {
  const std::vector<Stream> users{Stream::from_pool(), Stream::from_pool()};
  HeapBlock block;
  std::deque<StreamHold> holds;
  for (const Stream& user : users) holds.emplace_back(user);
  ASSERT_TRUE(free_block(block, users));
  EXPECT_EQ(block.use.load(), BlockUse::pending);
  EXPECT_THAT(promoted(), ::testing::IsEmpty());
  for (std::size_t i = 0; i < users.size(); ++i) {
    EXPECT_FALSE(deferred.empty());
    holds[i].release();
    users[i].synchronize();
    EXPECT_EQ(promoted().size(), i);
  }
  EXPECT_TRUE(deferred.empty());
}

TEST_F(DeferredFreesTest, ASlowStreamHoldsBackItsOwnBlocksOnly) {
  const Stream slow = Stream::from_pool();
  const Stream quick = Stream::from_pool();
  StreamHold short_hold(quick);
  StreamHold hold(slow);
  HeapBlock late;
  HeapBlock early;
  ASSERT_TRUE(free_block(late, {slow}));
  ASSERT_TRUE(free_block(early, {quick}));
  short_hold.release();
  quick.synchronize();
  EXPECT_THAT(promoted(), ::testing::ElementsAre(&early));
  EXPECT_EQ(deferred.oldest().clock, &StreamClock::of(slow));
  ASSERT_EQ(deferred.waiting().size(), 1U);
  EXPECT_EQ(deferred.waiting()[0].bytes, late.bytes);
  hold.release();
  slow.synchronize();
  EXPECT_THAT(promoted(), ::testing::ElementsAre(&late));
}

TEST_F(DeferredFreesTest, EveryStreamIsAskedForTheEndOfItsUses) {
  const std::array<Stream, 3> users{Stream::from_pool(), Stream::from_pool(), Stream::from_pool()};
  std::array<HeapBlock, 3> freed;
  std::deque<StreamHold> holds;
  for (std::size_t i = 0; i < users.size(); ++i) {
    holds.emplace_back(users[i]);
    ASSERT_TRUE(free_block(freed[i], {users[i]}));
  }
  for (std::size_t i = 0; i < users.size(); ++i) {
    holds[i].release();
    driver().synchronize_stream(users[i].native());  // clocks learn nothing from it
  }
  EXPECT_THAT(promoted(), ::testing::UnorderedElementsAre(&freed[0], &freed[1], &freed[2]));
}

TEST_F(DeferredFreesTest, AUseThatTheOwnStreamFollowsIsNoReasonToWait) {
  const Stream user = Stream::from_pool();
  const StreamHold hold(user);
  HeapBlock block;
  deferred.add_use(block, StreamClock::of(user), StreamClock::of(user).record_sequence());
  own.clock.join([&] {
    Timestamp timestamp;
    StreamClock::of(user).begin_timestamp(timestamp);
    return timestamp;
  }());
  EXPECT_FALSE(free_block(block, {}));
}

TEST_F(DeferredFreesTest, AStreamHasOneUseOfABlockWhichEndsLast) {
  const Stream user = Stream::from_pool();
  StreamClock& clock = StreamClock::of(user);
  constexpr std::uint64_t kUntilFree = 0;
  for (const std::vector<std::uint64_t>& recorded : std::vector<std::vector<std::uint64_t>>{
           {3, 7, 7}, {7, 3, 7}, {0, 3, kUntilFree}, {3, 0, kUntilFree}, {0, 0, kUntilFree}}) {
    HeapBlock block;
    deferred.add_use(block, clock, recorded[0]);
    deferred.add_use(block, StreamClock::of(Stream::default_stream()), 1);
    deferred.add_use(block, clock, recorded[1]);
    ASSERT_EQ(block.uses.size(), 2U);
    EXPECT_EQ(block.uses[0].clock, &clock);
    EXPECT_EQ(block.uses[0].sequence, recorded[2]) << recorded[0] << ", " << recorded[1];
  }
}

TEST_F(DeferredFreesTest, TheFirstAndTheLastUsesOfStreamsAreListed) {
  const std::array<Stream, 2> users{Stream::from_pool(), Stream::from_pool()};
  std::deque<StreamHold> holds;
  for (const Stream& user : users) holds.emplace_back(user);
  std::array<HeapBlock, 4> freed;
  ASSERT_TRUE(free_block(freed[0], {users[0]}));
  ASSERT_TRUE(free_block(freed[1], {users[0], users[1]}));  // waits for the second one first
  ASSERT_TRUE(free_block(freed[2], {users[1], users[0]}));
  ASSERT_TRUE(free_block(freed[3], {users[1]}));
  const auto sequence_of = [&](const std::vector<StreamUse>& uses, const Stream& user) {
    const auto found = std::ranges::find(uses, &StreamClock::of(user), &StreamUse::clock);
    return found == uses.end() ? 0 : found->sequence;
  };
  std::vector<StreamUse> first;
  deferred.list_first(first);
  EXPECT_EQ(first.size(), 2U);
  EXPECT_EQ(sequence_of(first, users[0]), freed[0].uses[0].sequence);
  EXPECT_EQ(sequence_of(first, users[1]), freed[1].uses[1].sequence);
  std::vector<StreamUse> last;
  deferred.list_last(last);
  EXPECT_EQ(last.size(), 2U);
  EXPECT_EQ(sequence_of(last, users[0]), freed[2].uses[1].sequence);
  EXPECT_EQ(sequence_of(last, users[1]), freed[3].uses[0].sequence);
  holds.clear();
  for (const Stream& user : users) user.synchronize();
  EXPECT_EQ(promoted().size(), freed.size());
}

// The blocks are freed in another order than their uses end.
TEST_F(DeferredFreesTest, BlocksLeaveAQueueInTheOrderOfTheirUses) {
  const Stream user = Stream::from_pool();
  StreamClock& clock = StreamClock::of(user);
  constexpr std::size_t kUses = 4;
  std::deque<StreamHold> holds;
  std::array<Event, kUses> ends;
  std::array<HeapBlock, kUses> freed;
  for (std::size_t i = 0; i < kUses; ++i) {
    holds.emplace_back(user);
    deferred.add_use(freed[i], clock, clock.next_sequence());
    ends[i].record(user);
  }
  for (const std::size_t i : {2, 0, 3, 1}) ASSERT_TRUE(free_block(freed[i], {}));
  deferred.verify();
  for (std::size_t i = 0; i < kUses; ++i) {
    EXPECT_THAT(promoted(), ::testing::IsEmpty());
    holds[i].release();
    ends[i].synchronize();
    EXPECT_THAT(promoted(), ::testing::ElementsAre(&freed[i]));
  }
  EXPECT_TRUE(deferred.empty());
}

// The block's stream still has work from before the free when the use by another one is over.
TEST_F(DeferredFreesTest, ABlockThatWaitedIsOpenToOthersBehindItsFree) {
  const Stream user = Stream::from_pool();
  for (int round = 0; round < 2; ++round) {
    StreamHold use(user);
    StreamHold own_work(own.clock.native());
    HeapBlock block;
    ASSERT_TRUE(free_block(block, {user}));
    use.release();
    user.synchronize();
    ASSERT_THAT(promoted(), ::testing::ElementsAre(&block));
    EXPECT_GT(block.sequence, own.clock.completed()) << "others would not wait";
    own_work.release();
    driver().synchronize_stream(own.clock.native());
    own.clock.poll();
    EXPECT_LE(block.sequence, own.clock.completed()) << "others would wait for later work";
  }
}

TEST_F(DeferredFreesTest, ABlockWhoseStreamWaitedForAUseIsOpenToOthersBehindThatWait) {
  for (const bool waits : {true, false}) {
    const Stream user = Stream::from_pool();
    StreamHold use(user);
    HeapBlock block;
    ASSERT_TRUE(free_block(block, {user}));
    driver().synchronize_stream(own.clock.native());
    own.clock.poll();
    ASSERT_LE(block.sequence, own.clock.completed());
    if (waits) {
      ASSERT_TRUE(StreamClock::of(user).make_wait(own.clock));
    } else {
      use.release();
      user.synchronize();
    }
    ASSERT_THAT(promoted(), ::testing::ElementsAre(&block));
    EXPECT_EQ(block.sequence > own.clock.completed(), waits);
  }
}

// The stream may be destroyed by then, and nobody waits for what it was given after the free.
TEST_F(DeferredFreesTest, AnExternalStreamsLaterWaitsEndNoUse) {
  const Stream user = Stream::from_pool();
  const gantry::testing::ForeignStream foreign;
  StreamBlocks& owner = blocks.of(foreign.stream());
  StreamHold use(user);
  HeapBlock block;
  ASSERT_TRUE(free_block_of(owner, block, {user}));
  const std::uint64_t freed_at = block.sequence;
  foreign.stream().wait(user);
  EXPECT_THAT(promoted(), ::testing::IsEmpty());
  use.release();
  user.synchronize();
  EXPECT_THAT(promoted(), ::testing::ElementsAre(&block));
  EXPECT_EQ(block.sequence, freed_at);
  foreign.stream().synchronize();
}

// An oracle: a block is free exactly when every stream that used it has been let go.
TEST_F(DeferredFreesTest, RandomUseAgainstAnOracle) {
  constexpr std::size_t kStreams = 4;
  std::mt19937 random(3);
  std::vector<Stream> users;
  for (std::size_t i = 0; i < kStreams; ++i) users.push_back(Stream::from_pool());
  for (int round = 0; round < 20; ++round) {
    std::deque<StreamHold> holds;
    for (const Stream& user : users) holds.emplace_back(user);
    struct Freed {
      std::set<std::size_t> waits;
      HeapBlock block;
    };
    std::deque<Freed> freed;
    for (int i = 0; i < 30; ++i) {
      Freed& one = freed.emplace_back();
      std::vector<Stream> of_block;
      for (std::size_t user = 0; user < kStreams; ++user) {
        if (random() % 2 == 0) continue;
        of_block.push_back(users[user]);
        one.waits.insert(user);
      }
      EXPECT_EQ(free_block(one.block, of_block), !one.waits.empty());
    }
    for (std::size_t user = 0; user < kStreams; ++user) {
      holds[user].release();
      users[user].synchronize();
      std::set<HeapBlock*> expected;
      for (Freed& one : freed) {
        if (one.waits.erase(user) != 0 && one.waits.empty()) expected.insert(&one.block);
      }
      const auto done = promoted();
      EXPECT_EQ(std::set<HeapBlock*>(done.begin(), done.end()), expected);
    }
    EXPECT_TRUE(deferred.empty());
  }
}

#ifndef NDEBUG
using DeferredFreesDeathTest = DeferredFreesTest;

TEST_F(DeferredFreesDeathTest, VerifyFindsWhatIsBroken) {
  const Stream user = Stream::from_pool();
  const Stream other = Stream::from_pool();
  std::array<HeapBlock, 2> freed;
  {
    const StreamHold hold(user);
    for (HeapBlock& block : freed) ASSERT_TRUE(free_block(block, {user}));
    deferred.verify();
    StreamUse& last = freed[0].uses.back();
    const StreamUse right = last;
    last.clock = &StreamClock::of(other);
    EXPECT_DEATH(deferred.verify(), "in the queue of another stream");
    last = right;
    last.sequence = freed[1].uses.back().sequence + 1;
    EXPECT_DEATH(deferred.verify(), "behind one whose use ends later");
    last = right;
    freed[1].use.store(BlockUse::free);
    EXPECT_DEATH(deferred.verify(), "is not pending");
    freed[1].use.store(BlockUse::pending);
    HeapBlock* const next = std::exchange(freed[0].next_in_bin, nullptr);
    EXPECT_DEATH(deferred.verify(), "its last block");
    freed[0].next_in_bin = next;
  }
  user.synchronize();
  EXPECT_EQ(promoted().size(), 2U);
}
#endif

class HeldBlocksTest : public gantry::testing::DeviceTest {
 protected:
  /// Blocks that release() frees.
  std::vector<HeapBlock*> released() {
    std::vector<HeapBlock*> free;
    held.release([&](HeapBlock& block) { free.push_back(&block); });
    return free;
  }

  HeldBlocks held;
};

TEST_F(HeldBlocksTest, HoldsABlockWhileAGraphMayUseIt) {
  HeapBlock block;
  EXPECT_FALSE(held.hold(block)) << "no capture used it";
  const Stream stream = Stream::from_pool();
  const auto capture = begin_capture(stream, CaptureMode::relaxed);
  HeldBlocks::add_capture(block, capture);
  HeldBlocks::add_capture(block, capture);
  EXPECT_EQ(block.captures->size(), 1U);
  EXPECT_TRUE(held.hold(block));
  EXPECT_THAT(released(), ::testing::IsEmpty());
  const NativeGraph graph = driver().end_capture(stream.native());
  EXPECT_THAT(released(), ::testing::IsEmpty()) << "the graph may run";
  driver().destroy_graph(graph);
  EXPECT_THAT(released(), ::testing::ElementsAre(&block));
  EXPECT_TRUE(held.empty());
  EXPECT_EQ(block.captures, nullptr);
}

TEST_F(HeldBlocksTest, ABlockOfSeveralCapturesWaitsForTheLast) {
  HeapBlock block;
  std::vector<NativeGraph> graphs;
  for (int i = 0; i < 3; ++i) {
    const Stream stream = Stream::from_pool();
    HeldBlocks::add_capture(block, begin_capture(stream, CaptureMode::relaxed));
    graphs.push_back(driver().end_capture(stream.native()));
  }
  EXPECT_TRUE(held.hold(block));
  for (const NativeGraph graph : graphs) {
    EXPECT_THAT(released(), ::testing::IsEmpty());
    driver().destroy_graph(graph);
  }
  EXPECT_THAT(released(), ::testing::ElementsAre(&block));
}

}  // namespace
}  // namespace gantry::memory
