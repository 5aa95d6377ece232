#include "core/authentication/message_tags.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace gantry {
namespace {

Key counting_key() {
  Key key{};
  std::iota(key.begin(), key.end(), static_cast<unsigned char>(0));
  return key;
}

std::string hexadecimal(const MessageTag& tag) {
  std::string text;
  for (const unsigned char byte : tag) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 0xf];
  }
  return text;
}

MessageTag tag_of(MessageTags& tags, std::string_view message) {
  tags.add(message);
  return tags.finish();
}

bool accepts(MessageTags& tags, std::string_view message, const MessageTag& tag) {
  tags.add(message);
  return tags.accept(std::as_bytes(std::span(tag)));
}

// Of RFC 8439's algorithms, written out in Python, for nonces 0, 1 and 2.
TEST(MessageTagsTest, KnownTags) {
  std::string counted(1000, '\0');
  for (std::size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<char>(i % 251);
  MessageTags tags(counting_key());
  EXPECT_EQ(hexadecimal(tags.finish()), "10324f800a160bd9a1794255be7ec29d");
  EXPECT_EQ(hexadecimal(tag_of(tags, "gantry")), "586ed7fb304efe1d6f8e54a5bf7b108d");
  EXPECT_EQ(hexadecimal(tag_of(tags, counted)), "90bfe75db5ffa8b2b0e64f8da004f46b");
}

TEST(MessageTagsTest, PartsMakeOneMessage) {
  const std::string message(1000, 'x');
  for (std::size_t cut = 0; cut <= message.size(); cut += 37) {
    MessageTags whole(counting_key());
    MessageTags parts(counting_key());
    parts.add(std::string_view(message).substr(0, cut));
    parts.add(std::string_view(message).substr(cut));
    EXPECT_EQ(parts.finish(), tag_of(whole, message));
  }
}

TEST(MessageTagsTest, ChangedRepeatedLostAndReorderedMessagesAreRefused) {
  MessageTags sender(counting_key());
  std::vector<MessageTag> tags;
  for (int i = 0; i < 3; ++i) tags.push_back(tag_of(sender, "message"));
  {
    MessageTags receiver(counting_key());
    for (const MessageTag& tag : tags) EXPECT_TRUE(accepts(receiver, "message", tag));
  }
  const auto first_is = [](std::string_view message, const MessageTag& tag) {
    MessageTags receiver(counting_key());
    return accepts(receiver, message, tag);
  };
  EXPECT_TRUE(first_is("message", tags[0]));
  EXPECT_FALSE(first_is("message", tags[1]));  // lost or reordered
  EXPECT_FALSE(first_is("massage", tags[0]));
  EXPECT_FALSE(first_is("messag", tags[0]));
  EXPECT_FALSE(first_is("message ", tags[0]));
  EXPECT_FALSE(first_is("", tags[0]));
  for (std::size_t bit = 0; bit < 8 * sizeof(MessageTag); ++bit) {
    MessageTag changed = tags[0];
    changed[bit / 8] = static_cast<unsigned char>(changed[bit / 8] ^ (1u << (bit % 8)));
    EXPECT_FALSE(first_is("message", changed));
  }
  MessageTags receiver(counting_key());
  EXPECT_TRUE(accepts(receiver, "message", tags[0]));
  EXPECT_FALSE(accepts(receiver, "message", tags[0]));  // repeated
  EXPECT_FALSE(receiver.accept({}));
}

TEST(MessageTagsTest, AnotherKeyHasOtherTags) {
  MessageTags own(counting_key());
  MessageTags other(random_key());
  EXPECT_NE(tag_of(own, "message"), tag_of(other, "message"));
  MessageTags moved = std::move(own);
  EXPECT_EQ(moved.finish().size(), 16u);
}

}  // namespace
}  // namespace gantry
