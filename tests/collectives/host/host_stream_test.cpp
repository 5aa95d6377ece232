// Messages on a data connection, and what a process between two ranks can do to them.
#include "collectives/host/links/stream.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/collectives/host/relayed_streams.hpp"

namespace gantry {
namespace {

using testing::RelayedStreams;

// How messages get their tags. `aside`: those of long messages, by another thread.
enum class Sealing { open, aside, encrypted };

class HostStreamTest : public ::testing::TestWithParam<Sealing> {
 protected:
  struct Streams : RelayedStreams {
    Streams()
        : RelayedStreams(GetParam() == Sealing::encrypted ? Secrecy::encrypted : Secrecy::open,
                         GetParam() == Sealing::aside) {}
  };
};

INSTANTIATE_TEST_SUITE_P(Sealing, HostStreamTest,
                         ::testing::Values(Sealing::open, Sealing::aside, Sealing::encrypted),
                         [](const auto& test) {
                           return test.param == Sealing::open    ? "open"
                                  : test.param == Sealing::aside ? "aside"
                                                                 : "encrypted";
                         });

TEST_P(HostStreamTest, MessagesOfAllSizesArriveWithTheirTags) {
  Streams streams;
  std::mt19937 random(3);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{4096}, std::size_t{65'536},
        std::size_t{262'136}, std::size_t{262'144}, std::size_t{3'000'000}}) {
    std::string body(size, '\0');
    for (char& byte : body) byte = static_cast<char>(random());
    const std::string bytes = streams.sent("head", body);
    EXPECT_EQ(bytes.size(), 8 + 4 + size + sizeof(MessageTag));
    std::vector<std::byte> buffer(size + 4);
    Incoming message{0, buffer};
    EXPECT_EQ(streams.deliver(bytes, message), HostStream::Outcome::moved);
    EXPECT_EQ(message.bytes, size + 4);
    EXPECT_EQ(std::memcmp(buffer.data() + 4, body.data(), size), 0);
  }
}

// Also a message of which the connection takes a part at a time, between others.
TEST_P(HostStreamTest, WhatAProcessBetweenTheRanksSees) {
  Streams streams;
  const std::string secret = "a sentence that stands in every message";
  for (int i = 0; i < 3; ++i) {
    std::string body;
    while (body.size() < 1'000'000) body += secret;
    const std::string bytes = streams.sent(secret, body);
    EXPECT_EQ(bytes.find(secret) == std::string::npos, GetParam() == Sealing::encrypted);
    std::vector<std::byte> buffer(body.size() + secret.size());
    Incoming message{0, buffer};
    EXPECT_EQ(streams.deliver(bytes, message), HostStream::Outcome::moved);
    EXPECT_EQ(std::memcmp(buffer.data(), (secret + body).data(), buffer.size()), 0);
  }
}

TEST(HostStreamKeysTest, TheSameMessageIsEncryptedToOtherBytes) {
  RelayedStreams streams(Secrecy::encrypted);
  const std::string message(100, 'x');
  const std::string first = streams.sent("", message);
  EXPECT_NE(streams.sent("", message).substr(8), first.substr(8));
  RelayedStreams others(Secrecy::encrypted);
  EXPECT_NE(others.sent("", message).substr(8), first.substr(8));
}

TEST_P(HostStreamTest, AChangedByteOfAMessageIsNoticed) {
  for (const std::size_t size : {std::size_t{40}, std::size_t{1'000'000}}) {
    const std::size_t whole = 8 + size + sizeof(MessageTag);
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{8}, 8 + size / 2, 8 + size - 1, 8 + size, whole - 1}) {
      Streams streams;
      std::string bytes = streams.sent("", std::string(size, 'x'));
      bytes[at] = static_cast<char>(bytes[at] ^ 1);
      if (at == 0) bytes += std::string(16, 'x');  // a longer message
      std::vector<std::byte> buffer(size + 16);
      Incoming message{0, buffer};
      EXPECT_EQ(streams.deliver(bytes, message), HostStream::Outcome::forged) << at;
      EXPECT_EQ(streams.to.awaited(), 1u);
    }
  }
}

TEST_P(HostStreamTest, AMessageThatDoesNotFitIsRefusedAndWritesNothing) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{40}, std::size_t{1'000'000}}) {
    for (const std::size_t room : {size - 1, size / 2, std::size_t{0}}) {
      Streams streams;
      const std::string bytes = streams.sent("", std::string(size, 'x'));
      std::vector<std::byte> memory(size + 16, std::byte{0x5a});
      const std::vector<std::byte> before = memory;
      Incoming message{0, std::span(memory).first(room)};
      // The stream is of no use behind it.
      const std::string_view first = std::string_view(bytes).substr(0, 1000);
      EXPECT_EQ(streams.deliver(first, message), HostStream::Outcome::too_long) << size << room;
      EXPECT_EQ(memory, before);
      EXPECT_EQ(streams.to.progress(), HostStream::Outcome::too_long);
      EXPECT_EQ(memory, before);
    }
    Streams streams;
    std::vector<std::byte> memory(size);
    Incoming message{0, memory};
    EXPECT_EQ(streams.deliver(streams.sent("", std::string(size, 'x')), message),
              HostStream::Outcome::moved);
  }
}

TEST_P(HostStreamTest, RepeatedReorderedAndLostMessagesAreNoticed) {
  Streams streams;
  std::vector<std::string> messages;
  for (int i = 0; i < 3; ++i) messages.push_back(streams.sent("", "message"));
  std::array<std::byte, 16> buffer;
  {
    Incoming first{0, buffer};
    EXPECT_EQ(streams.deliver(messages[0], first), HostStream::Outcome::moved);
    Incoming again{0, buffer};
    EXPECT_EQ(streams.deliver(messages[0], again), HostStream::Outcome::forged);
  }
  Streams others;
  (void)others.sent("", "message");
  Incoming second{0, buffer};
  EXPECT_EQ(others.deliver(others.sent("", "message"), second), HostStream::Outcome::forged);
}

// Long and short messages wait in one queue, in both directions of two connections at once.
TEST_P(HostStreamTest, QueuedMessagesOfMixedSizesKeepTheirOrder) {
  Streams streams;
  std::mt19937 random(5);
  std::vector<std::string> bodies;
  for (const std::size_t size : {200'000, 3, 1'500'000, 0, 131'072, 131'071, 70'000, 600'000}) {
    std::string& body = bodies.emplace_back(size, '\0');
    for (char& byte : body) byte = static_cast<char>(random());
  }
  for (const std::string& body : bodies) {
    streams.from.queue({1, {}, std::as_bytes(std::span(body))});
  }
  const std::string bytes = streams.sent("last", "");
  std::string_view rest = bytes;
  std::vector<std::byte> buffer(2'000'000);
  for (const std::string& body : bodies) {
    const std::size_t whole = 8 + body.size() + sizeof(MessageTag);
    Incoming message{0, buffer};
    ASSERT_EQ(streams.deliver(rest.substr(0, whole), message), HostStream::Outcome::moved);
    ASSERT_EQ(message.bytes, body.size());
    EXPECT_EQ(std::memcmp(buffer.data(), body.data(), body.size()), 0);
    rest.remove_prefix(whole);
  }
  Incoming last{0, buffer};
  EXPECT_EQ(streams.deliver(rest, last), HostStream::Outcome::moved);
  EXPECT_EQ(last.bytes, 4u);
}

}  // namespace
}  // namespace gantry
