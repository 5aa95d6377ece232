// The chunks that a process offers to others: a random program beside a model that knows each
// chunk.
#include "ipc/offered_ranges.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "ipc/socket.hpp"

namespace gantry::memory {
namespace {

constexpr std::size_t kChunkBytes = 100;

std::byte* address(std::uintptr_t number) { return reinterpret_cast<std::byte*>(number); }

BlockExtent extent_of(std::byte* range, std::size_t range_bytes, std::size_t chunks) {
  BlockExtent extent;
  extent.range = range;
  extent.range_bytes = range_bytes;
  extent.chunks.assign(chunks, {NativeChunk{1}, kChunkBytes});
  return extent;
}

class OfferedRangesTest : public ::testing::Test {
 protected:
  std::vector<ChunkOffer> offer(std::size_t first, std::size_t chunks) {
    return ranges_.offer(extent_of(base_, kRangeBytes, chunks), base_ + first * kChunkBytes);
  }
  bool finds(std::size_t first, std::size_t last) {
    return ranges_.find(base_ + first, last - first, places_);
  }
  // The other members map an offer.
  void accept(const ChunkOffer& offer) { ranges_.accept(offer.part, {base_, mirror_}); }

  static constexpr std::size_t kRangeBytes = 1000 * kChunkBytes;
  std::byte* const base_ = address(1 << 20);
  std::byte* const mirror_ = address(std::uintptr_t{1} << 40);
  std::array<std::byte*, 2> places_{};
  OfferedRanges ranges_{2};
};

TEST_F(OfferedRangesTest, OnlyOpenBytesHaveAddresses) {
  EXPECT_FALSE(finds(0, 1));
  const auto offers = offer(2, 3);
  ASSERT_EQ(offers.size(), 1u);
  EXPECT_EQ(offers[0].part.run, (gantry::Run{200, 500}));
  EXPECT_EQ(offers[0].chunks.size(), 3u);
  EXPECT_FALSE(finds(200, 500));
  EXPECT_TRUE(ranges_.is_in_transition(base_ + 499, 1));
  accept(offers[0]);
  ASSERT_TRUE(finds(250, 500));
  EXPECT_EQ(places_[0], base_ + 250);
  EXPECT_EQ(places_[1], mirror_ + 250);
  EXPECT_FALSE(finds(250, 501));
  EXPECT_FALSE(finds(199, 300));
  EXPECT_FALSE(ranges_.is_in_transition(base_ + 200, 300));
}

TEST_F(OfferedRangesTest, KnownChunksAreNotOfferedAgain) {
  accept(offer(3, 1)[0]);
  ranges_.refuse(offer(5, 1)[0].part);
  const auto rest = offer(2, 6);
  ASSERT_EQ(rest.size(), 3u);
  EXPECT_EQ(rest[0].part.run, (gantry::Run{200, 300}));
  EXPECT_EQ(rest[1].part.run, (gantry::Run{400, 500}));
  EXPECT_EQ(rest[2].part.run, (gantry::Run{600, 800}));
  EXPECT_TRUE(offer(0, 8).size() == 1u);  // chunks 0 and 1
}

TEST_F(OfferedRangesTest, AnOfferFitsIntoAPacket) {
  const auto offers = offer(0, 2 * kChunksPerPacket + 1);
  ASSERT_EQ(offers.size(), 3u);
  for (const ChunkOffer& one : offers) accept(one);
  EXPECT_TRUE(finds(0, (2 * kChunksPerPacket + 1) * kChunkBytes));
}

TEST_F(OfferedRangesTest, ChunksThatLeaveAreWithdrawnEvenWhileTheyAreOffered) {
  const auto open = offer(0, 2);
  accept(open[0]);
  const auto under_way = offer(2, 2);
  const auto left = ranges_.withdraw(base_ + 100, 200);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_TRUE(ranges_.has_withdrawn());
  EXPECT_FALSE(ranges_.is_offered(under_way[0].part));
  accept(under_way[0]);  // the members have mapped it by now
  EXPECT_TRUE(finds(300, 400));
  EXPECT_FALSE(finds(200, 300));
  EXPECT_FALSE(finds(100, 200));
  EXPECT_TRUE(offer(1, 2).empty());  // some members may have them still
  for (const RangePart& part : left) ranges_.forget(part);
  EXPECT_FALSE(ranges_.has_withdrawn());
  EXPECT_EQ(offer(1, 2).size(), 1u);
}

TEST_F(OfferedRangesTest, KeptAddressesNeedTheirNextChunks) {
  accept(offer(0, 3)[0]);
  ranges_.keep(base_ + 150, 100);
  ranges_.keep(base_ + 120, 60);
  EXPECT_TRUE(ranges_.has_kept(base_, 121));
  EXPECT_FALSE(ranges_.has_kept(base_, 120));
  EXPECT_FALSE(ranges_.has_kept_closed(base_, 300));
  for (const RangePart& part : ranges_.withdraw(base_ + 100, 100)) ranges_.forget(part);
  EXPECT_TRUE(ranges_.has_kept_closed(base_, 300));
  EXPECT_FALSE(ranges_.has_kept_closed(base_ + 200, 100));
  accept(offer(1, 1)[0]);
  EXPECT_FALSE(ranges_.has_kept_closed(base_, 300));
}

TEST_F(OfferedRangesTest, AnEarlierRangeAtTheAddressesEndsOnceItIsUnused) {
  const auto offers = offer(0, 1);
  accept(offers[0]);
  const BlockExtent larger = extent_of(base_ - 500, 2 * kRangeBytes, 1);
  EXPECT_TRUE(ranges_.offer(larger, base_).empty());
  for (const RangePart& part : ranges_.withdraw(base_, 100)) ranges_.forget(part);
  const auto later = ranges_.offer(larger, base_);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_NE(later[0].part.range, offers[0].part.range);
  accept(offers[0]);  // late: of a range that is gone
  EXPECT_FALSE(finds(0, 100));
}

// Each chunk's state, one by one.
TEST_F(OfferedRangesTest, RandomProgramsAgreeWithAModel) {
  enum class State : std::uint8_t { unknown, offered, open, withdrawn, refused };
  constexpr std::size_t kChunks = 40;
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](std::size_t below) { return static_cast<std::size_t>(random()) % below; };
    OfferedRanges ranges(2);
    std::array<State, kChunks> model{};
    std::deque<RangePart> offers;
    std::deque<RangePart> withdrawals;
    const auto each = [&](const RangePart& part, State from, State to) {
      for (std::size_t i = part.run.begin / kChunkBytes; i < part.run.end / kChunkBytes; ++i) {
        if (model[i] == from) model[i] = to;
      }
    };
    for (int step = 0; step < 2000; ++step) {
      const std::size_t first = draw(kChunks);
      const std::size_t count = 1 + draw(kChunks - first);
      switch (draw(5)) {
        case 0:
          for (ChunkOffer& one :
               ranges.offer(extent_of(base_, kRangeBytes, count), base_ + first * kChunkBytes)) {
            each(one.part, State::unknown, State::offered);
            offers.push_back(one.part);
          }
          for (std::size_t i = first; i < first + count; ++i) ASSERT_NE(model[i], State::unknown);
          break;
        case 1:
          for (RangePart& part :
               ranges.withdraw(base_ + first * kChunkBytes, count * kChunkBytes)) {
            each(part, State::open, State::withdrawn);
            each(part, State::offered, State::withdrawn);
            withdrawals.push_back(part);
          }
          for (std::size_t i = first; i < first + count; ++i) {
            ASSERT_TRUE(model[i] != State::open && model[i] != State::offered);
            if (model[i] == State::refused) model[i] = State::unknown;
          }
          break;
        case 2: {
          if (offers.empty()) break;
          const RangePart part = offers.front();
          offers.pop_front();
          const bool is_refused = draw(4) == 0;
          if (is_refused) {
            ranges.refuse(part);
          } else {
            ranges.accept(part, {base_, mirror_});
          }
          each(part, State::offered, is_refused ? State::refused : State::open);
          break;
        }
        case 3:
          // Offers that are under way end first, as on the one connection.
          if (withdrawals.empty() || !offers.empty()) break;
          ranges.forget(withdrawals.front());
          each(withdrawals.front(), State::withdrawn, State::unknown);
          withdrawals.pop_front();
          break;
        default: {
          const std::size_t begin = first * kChunkBytes + draw(kChunkBytes);
          const std::size_t end = (first + count) * kChunkBytes - draw(kChunkBytes / 2);
          if (begin >= end) break;
          const auto inside = [&](const auto& is) {
            return std::all_of(
                model.begin() + static_cast<std::ptrdiff_t>(begin / kChunkBytes),
                model.begin() + static_cast<std::ptrdiff_t>((end + kChunkBytes - 1) / kChunkBytes),
                is);
          };
          ASSERT_EQ(ranges.find(base_ + begin, end - begin, places_),
                    inside([](State state) { return state == State::open; }))
              << "seed " << seed << ", step " << step;
          ASSERT_EQ(ranges.is_in_transition(base_ + begin, end - begin), !inside([](State state) {
                      return state != State::offered && state != State::withdrawn;
                    }));
          break;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gantry::memory
