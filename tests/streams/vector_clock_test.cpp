// The entries of a vector clock against a plain array.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "streams/stream_clock.hpp"

namespace gantry {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr std::uint32_t kPage = VectorClock::kPageSlots;
constexpr std::uint32_t kLast = VectorClock::kSlots - 1;

std::vector<std::uint64_t> copy_of(const VectorClock& clock) {
  std::vector<std::uint64_t> entries{99, 99};
  clock.copy_to(entries);
  return entries;
}

TEST(VectorClockTest, ANewClockHasNoEntry) {
  const VectorClock clock;
  for (const std::uint32_t slot : {0U, 1U, kPage, kLast, kLast + 1, ~0U}) {
    EXPECT_EQ(clock.get(slot), 0u) << slot;
  }
  EXPECT_THAT(copy_of(clock), IsEmpty());
}

TEST(VectorClockTest, AnEntryOnlyRises) {
  VectorClock clock;
  clock.raise(3, 7);
  clock.raise(3, 5);
  EXPECT_EQ(clock.get(3), 7u);
  clock.raise(3, 8);
  EXPECT_EQ(clock.get(3), 8u);
  clock.raise(3, 0);
  EXPECT_EQ(clock.get(3), 8u);
}

TEST(VectorClockTest, NumberZeroMakesNoEntry) {
  VectorClock clock;
  clock.raise(kPage + 1, 0);
  EXPECT_THAT(copy_of(clock), IsEmpty());
}

TEST(VectorClockTest, SlotsPastTheLastHaveNoEntry) {
  VectorClock clock;
  clock.raise(kLast, 4);
  clock.raise(kLast + 1, 5);
  clock.raise(~0U, 6);
  EXPECT_EQ(clock.get(kLast), 4u);
  EXPECT_EQ(clock.get(kLast + 1), 0u);
  EXPECT_EQ(copy_of(clock).size(), VectorClock::kSlots);
}

TEST(VectorClockTest, ACopyEndsAtTheHighestSlotAndFillsPagesThatAreMissing) {
  VectorClock clock;
  clock.raise(3 * kPage + 2, 9);
  clock.raise(1, 4);
  const std::vector<std::uint64_t> entries = copy_of(clock);
  ASSERT_EQ(entries.size(), 3 * kPage + 3);
  EXPECT_EQ(entries[1], 4u);
  EXPECT_EQ(entries.back(), 9u);
  EXPECT_THAT(std::vector(entries.begin() + 2, entries.end() - 1), Each(0u));
}

TEST(VectorClockTest, RandomRaisesGiveTheGreatestOfEverySlot) {
  std::mt19937 random(11);
  VectorClock clock;
  std::map<std::uint32_t, std::uint64_t> greatest;
  for (int step = 0; step < 20'000; ++step) {
    const auto slot = static_cast<std::uint32_t>(random() % (5 * kPage));
    const std::uint64_t sequence = 1 + random() % 1000;
    clock.raise(slot, sequence);
    greatest[slot] = std::max(greatest[slot], sequence);
  }
  const std::vector<std::uint64_t> entries = copy_of(clock);
  ASSERT_EQ(entries.size(), greatest.rbegin()->first + 1);
  for (std::uint32_t slot = 0; slot < entries.size(); ++slot) {
    const auto known = greatest.find(slot);
    EXPECT_EQ(entries[slot], known == greatest.end() ? 0 : known->second) << slot;
    EXPECT_EQ(clock.get(slot), entries[slot]);
  }
}

// Threads raise the same slots of new pages. No raise is lost, and no copy goes back.
TEST(VectorClockTest, ConcurrentRaisesAreAllKept) {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint64_t kNumbers = 2000;
  constexpr std::uint32_t kUsed = 4 * kPage;
  VectorClock clock;
  std::atomic<bool> is_over = false;
  std::thread reader([&] {
    std::vector<std::uint64_t> before;
    std::vector<std::uint64_t> now;
    while (!is_over) {
      clock.copy_to(now);
      ASSERT_GE(now.size(), before.size());
      for (std::size_t slot = 0; slot < before.size(); ++slot) ASSERT_GE(now[slot], before[slot]);
      std::swap(before, now);
    }
  });
  std::vector<std::thread> writers;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    writers.emplace_back([&, thread] {
      for (std::uint64_t number = 1; number <= kNumbers; ++number) {
        const auto slot = static_cast<std::uint32_t>(number * 37 % kUsed);
        clock.raise(slot, number * kThreads + thread);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  is_over = true;
  reader.join();
  std::map<std::uint32_t, std::uint64_t> greatest;
  for (std::uint64_t number = 1; number <= kNumbers; ++number) {
    greatest[static_cast<std::uint32_t>(number * 37 % kUsed)] = number * kThreads + kThreads - 1;
  }
  for (const auto& [slot, number] : greatest) EXPECT_EQ(clock.get(slot), number) << slot;
}

}  // namespace
}  // namespace gantry
