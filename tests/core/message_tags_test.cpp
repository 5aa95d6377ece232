#include "core/authentication/message_tags.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace gantry {
namespace {

constexpr auto kSender = MessageTags::End::sender;
constexpr auto kReceiver = MessageTags::End::receiver;

Key counting_key() {
  Key key{};
  std::iota(key.begin(), key.end(), static_cast<unsigned char>(0));
  return key;
}

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) & 0xf];
  }
  return text;
}
std::string hexadecimal(const MessageTag& tag) {
  return hexadecimal({reinterpret_cast<const char*>(tag.data()), tag.size()});
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
  MessageTags tags(counting_key(), kSender);
  EXPECT_EQ(hexadecimal(tags.finish()), "10324f800a160bd9a1794255be7ec29d");
  EXPECT_EQ(hexadecimal(tag_of(tags, "gantry")), "586ed7fb304efe1d6f8e54a5bf7b108d");
  EXPECT_EQ(hexadecimal(tag_of(tags, counted)), "90bfe75db5ffa8b2b0e64f8da004f46b");
}

TEST(MessageTagsTest, PartsMakeOneMessage) {
  const std::string message(1000, 'x');
  for (std::size_t cut = 0; cut <= message.size(); cut += 37) {
    MessageTags whole(counting_key(), kSender);
    MessageTags parts(counting_key(), kSender);
    parts.add(std::string_view(message).substr(0, cut));
    parts.add(std::string_view(message).substr(cut));
    EXPECT_EQ(parts.finish(), tag_of(whole, message));
  }
}

TEST(MessageTagsTest, ChangedRepeatedLostAndReorderedMessagesAreRefused) {
  MessageTags sender(counting_key(), kSender);
  std::vector<MessageTag> tags;
  for (int i = 0; i < 3; ++i) tags.push_back(tag_of(sender, "message"));
  {
    MessageTags receiver(counting_key(), kReceiver);
    for (const MessageTag& tag : tags) EXPECT_TRUE(accepts(receiver, "message", tag));
  }
  const auto first_is = [](std::string_view message, const MessageTag& tag) {
    MessageTags receiver(counting_key(), kReceiver);
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
  MessageTags receiver(counting_key(), kReceiver);
  EXPECT_TRUE(accepts(receiver, "message", tags[0]));
  EXPECT_FALSE(accepts(receiver, "message", tags[0]));  // repeated
  EXPECT_FALSE(receiver.accept({}));
}

TEST(MessageTagsTest, AnotherKeyHasOtherTags) {
  MessageTags own(counting_key(), kSender);
  MessageTags other(random_key(), kSender);
  EXPECT_NE(tag_of(own, "message"), tag_of(other, "message"));
  MessageTags moved = std::move(own);
  EXPECT_EQ(moved.finish().size(), 16u);
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string encrypted(MessageTags& tags, std::string_view head, std::string_view text) {
  tags.add(head);
  std::string result(text.size(), '\0');
  tags.encrypt(bytes_of(text), reinterpret_cast<std::byte*>(result.data()));
  return result;
}

// RFC 8439, section 2.8.2, with another nonce, written out in Python.
TEST(MessageTagsTest, EncryptedMessagesAreThoseOfTheStandard) {
  MessageTags tags(counting_key(), kSender);
  const std::string bytes = encrypted(tags, "head", "gantry");
  EXPECT_EQ(hexadecimal(bytes), "7fd92c45df9f");
  EXPECT_EQ(hexadecimal(tags.finish()), "19e999e6afe518df6eeb43168e0dbdc3");
}

TEST(MessageTagsTest, EncryptedMessagesAreReadByTheirReceiver) {
  MessageTags sender(counting_key(), kSender);
  MessageTags receiver(counting_key(), kReceiver);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{100'000}}) {
    const std::string message(size, 'x');
    std::string bytes = encrypted(sender, "head", message);
    const MessageTag tag = sender.finish();
    receiver.add("head");
    const auto all = std::as_writable_bytes(std::span(bytes));
    receiver.decrypt(all.first(size / 3));  // in parts of other sizes
    receiver.decrypt(all.subspan(size / 3));
    EXPECT_TRUE(receiver.accept(std::as_bytes(std::span(tag))));
    EXPECT_EQ(bytes, message);
  }
}

TEST(MessageTagsTest, ChangedEncryptedMessagesAreRefused) {
  MessageTags sender(counting_key(), kSender);
  const std::string bytes = encrypted(sender, "head", "message");
  const MessageTag tag = sender.finish();
  const auto accepts = [&](std::string_view head, std::string text) {
    MessageTags receiver(counting_key(), kReceiver);
    receiver.add(head);
    receiver.decrypt(std::as_writable_bytes(std::span(text)));
    return receiver.accept(std::as_bytes(std::span(tag)));
  };
  EXPECT_TRUE(accepts("head", bytes));
  EXPECT_FALSE(accepts("Head", bytes));
  EXPECT_FALSE(accepts("head", "message"));
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_FALSE(accepts("head", changed));
  }
}

}  // namespace
}  // namespace gantry
