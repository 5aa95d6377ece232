#include <gantry/kernels/philox.hpp>

#include <gtest/gtest.h>

namespace gantry {
namespace {

// Known answers of Random123's philox4x32-10; counter {x, y, z, w} = {block, offset}, low words
// first.
TEST(PhiloxTest, MatchesKnownAnswerForZeros) {
  const Philox4 words = philox4x32_10(0, 0, 0);
  EXPECT_EQ(words.x, 0x6627e8d5u);
  EXPECT_EQ(words.y, 0xe169c58du);
  EXPECT_EQ(words.z, 0xbc57ac4cu);
  EXPECT_EQ(words.w, 0x9b00dbd8u);
}

TEST(PhiloxTest, MatchesKnownAnswerForOnes) {
  const std::uint64_t ones = ~std::uint64_t{0};
  const Philox4 words = philox4x32_10(ones, ones, ones);
  EXPECT_EQ(words.x, 0x408f276du);
  EXPECT_EQ(words.y, 0x41c83b0eu);
  EXPECT_EQ(words.z, 0xa20bc7c6u);
  EXPECT_EQ(words.w, 0x6d5451fdu);
}

TEST(PhiloxTest, MatchesKnownAnswerForDigitsOfPi) {
  // key a4093822 299f31d0, counter 243f6a88 85a308d3 13198a2e 03707344
  const Philox4 words =
      philox4x32_10(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 0x0370734413198a2eu);
  EXPECT_EQ(words.x, 0xd16cfe09u);
  EXPECT_EQ(words.y, 0x94fdccebu);
  EXPECT_EQ(words.z, 0x5001e420u);
  EXPECT_EQ(words.w, 0x24126ea1u);
}

}  // namespace
}  // namespace gantry
