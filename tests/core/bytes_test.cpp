#include "core/bytes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace gantry {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(BytesTest, NumbersAreLittleEndian) {
  ByteWriter writer;
  writer.number(std::uint8_t{0xab}).number(std::uint32_t{0x01020304}).number(std::int16_t{-2});
  EXPECT_EQ(writer.bytes(), bytes_of({0xab, 4, 3, 2, 1, 0xfe, 0xff}));
  ByteWriter<std::string> text;
  text.number(std::uint16_t{0x4142});
  EXPECT_EQ(text.bytes(), "BA");
}

TEST(BytesTest, FieldsSurviveTheRoundTrip) {
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
  ByteWriter writer;
  writer.number(kLowest).number(std::uint64_t{0xfedcba9876543210u}).text("").text("a\0b");
  writer.fixed_text("four", 6).fixed_text("too long", 3).raw(bytes_of({7, 0}));
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.number<std::int64_t>(), kLowest);
  EXPECT_EQ(reader.number<std::uint64_t>(), 0xfedcba9876543210u);
  EXPECT_EQ(reader.text(), "");
  EXPECT_EQ(reader.text(), "a");
  EXPECT_EQ(reader.fixed_text(6), "four");
  EXPECT_EQ(reader.fixed_text(3), "too");
  EXPECT_FALSE(reader.finished());
  const auto last = reader.raw(2);
  EXPECT_EQ(std::vector<std::byte>(last.begin(), last.end()), bytes_of({7, 0}));
  EXPECT_TRUE(reader.finished());
}

TEST(BytesTest, MissingFieldsAreEmpty) {
  const auto bytes = bytes_of({1, 2, 3});
  ByteReader reader(bytes);
  EXPECT_EQ(reader.number<std::uint32_t>(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.number<std::uint8_t>(), 0u) << "nothing is read after a missing field";
  EXPECT_TRUE(reader.raw(1).empty());
  EXPECT_FALSE(reader.finished());
}

TEST(BytesTest, LengthsBeyondTheEndAreMissingFields) {
  ByteWriter writer;
  writer.number(std::numeric_limits<std::uint32_t>::max()).number(std::uint8_t{'x'});
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.text(), "");
  EXPECT_FALSE(reader.ok());
}

// The published test vectors of 64-bit FNV-1a.
TEST(BytesTest, ChecksumIsFnv1a) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace gantry
