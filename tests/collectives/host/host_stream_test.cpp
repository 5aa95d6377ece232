// Messages on a data connection, and what a process between two ranks can do to them.
#include "collectives/host/stream.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/collectives/host/relayed_streams.hpp"

namespace gantry {
namespace {

using testing::RelayedStreams;

TEST(HostStreamTest, MessagesOfAllSizesArriveWithTheirTags) {
  RelayedStreams streams;
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

TEST(HostStreamTest, AChangedByteOfAMessageIsNoticed) {
  for (const std::size_t size : {std::size_t{40}, std::size_t{1'000'000}}) {
    const std::size_t whole = 8 + size + sizeof(MessageTag);
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{8}, 8 + size / 2, 8 + size - 1, 8 + size, whole - 1}) {
      RelayedStreams streams;
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

TEST(HostStreamTest, RepeatedReorderedAndLostMessagesAreNoticed) {
  RelayedStreams streams;
  std::vector<std::string> messages;
  for (int i = 0; i < 3; ++i) messages.push_back(streams.sent("", "message"));
  std::array<std::byte, 16> buffer;
  {
    Incoming first{0, buffer};
    EXPECT_EQ(streams.deliver(messages[0], first), HostStream::Outcome::moved);
    Incoming again{0, buffer};
    EXPECT_EQ(streams.deliver(messages[0], again), HostStream::Outcome::forged);
  }
  RelayedStreams others;
  (void)others.sent("", "message");
  Incoming second{0, buffer};
  EXPECT_EQ(others.deliver(others.sent("", "message"), second), HostStream::Outcome::forged);
}

}  // namespace
}  // namespace gantry
