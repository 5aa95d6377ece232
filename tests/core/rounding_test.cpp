#include "core/rounding.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace gantry {
namespace {

constexpr std::size_t kMost = ~std::size_t{0};

// Sizes of all magnitudes, both ends of the range included.
std::size_t any_size(std::mt19937_64& random) {
  const std::size_t bits = random() % 65;
  const std::size_t below = bits == 0 ? 0 : random() >> (64 - bits);
  return random() % 4 == 0 ? kMost - below : below;
}

TEST(RoundingTest, RoundUpIsTheNextMultipleOrTheLargestOne) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const std::size_t bytes = any_size(random);
    const std::size_t grain = std::size_t{1} << (random() % 30);
    const std::size_t rounded = round_up(bytes, grain);
    ASSERT_EQ(rounded % grain, 0U);
    if (bytes > kMost / grain * grain) {
      ASSERT_EQ(rounded, kMost / grain * grain);
    } else {
      ASSERT_GE(rounded, bytes);
      ASSERT_LT(rounded - bytes, grain);
    }
  }
}

TEST(RoundingTest, AlignUpFindsTheNextAlignedAddress) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100000; ++i) {
    const std::uintptr_t address = random() >> 8;
    const std::size_t alignment = std::size_t{1} << (random() % 30);
    auto* const data = reinterpret_cast<void*>(address);
    const auto aligned = reinterpret_cast<std::uintptr_t>(align_up(data, alignment));
    ASSERT_EQ(aligned % alignment, 0U);
    ASSERT_LT(aligned - address, alignment);
    ASSERT_EQ(padding_of(data, alignment), aligned - address);
  }
}

TEST(RoundingTest, SumsEndAtTheLargestSize) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100000; ++i) {
    const std::size_t a = any_size(random);
    const std::size_t b = any_size(random);
    const unsigned __int128 sum = static_cast<unsigned __int128>(a) + b;
    ASSERT_EQ(add_saturated(a, b), sum > kMost ? kMost : static_cast<std::size_t>(sum));
  }
}

}  // namespace
}  // namespace gantry
