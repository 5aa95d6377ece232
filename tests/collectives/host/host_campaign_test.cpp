// Hostile conversations with ranks, and changed messages between them. GANTRY_TEST_ROUNDS makes
// them more, GANTRY_TEST_SEED others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>

#include "collectives/host/links/connections.hpp"
#include "tests/collectives/host/relayed_streams.hpp"
#include "tests/support/hostile_peer.hpp"

namespace gantry {
namespace {

using testing::HostileTarget;
using testing::Random;
using testing::RelayedStreams;

constexpr std::chrono::seconds kLong{60};

template <class T>
std::string bytes_of(const T& object) {
  return {reinterpret_cast<const char*>(&object), sizeof object};
}

// Two ranks, connected, at whose ports outsiders talk.
class TwoRanks {
 public:
  explicit TwoRanks(Neighbourhood where) : where_(where) {
    std::vector<RankAddress> own(2);
    std::vector<LinkDescriptors> descriptors;
    for (RankAddress& address : own) descriptors.push_back(open_descriptors(address, where));
    const std::vector<std::string> addresses{own[0].str(), own[1].str()};
    key_ = group_key({}, addresses);
    for (int rank = 0; rank < 2; ++rank) {
      LinkGroup group{rank, 2, kLong};
      group.where = where;
      ranks_.push_back(std::make_unique<Connections>(
          group, addresses, std::move(descriptors[static_cast<std::size_t>(rank)])));
    }
    std::thread other([&] { ranks_[1]->connect_neighbours(deadline()); });
    ranks_[0]->connect_neighbours(deadline());
    other.join();
    address_ =
        where == Neighbourhood::one_user
            ? SocketAddress{.kind = SocketAddress::Kind::unix_abstract,
                            .name = own[0].hosts.front().substr(1),
                            .port = 0}
            : SocketAddress{
                  .kind = SocketAddress::Kind::tcp, .name = "127.0.0.1", .port = own[0].port};
  }
  [[nodiscard]] const SocketAddress& address() const { return address_; }
  // A rank that connects while outsiders do: it is told that rank 0's own connection counts, or is
  // welcome.
  void expect_undisturbed() {
    EXPECT_FALSE(ranks_[0]->why_broken());
    EXPECT_FALSE(ranks_[1]->why_broken());
    for (int tries = 0; tries < 100; ++tries) {
      testing::HostilePeer peer(address_);
      Hello hello;
      hello.from = 1;
      hello.purpose = Purpose::data;
      hello.nonce = random_key();
      hello.proof = ConnectionKey(key_, hello).proof_of(hello);
      peer.send(bytes_of(hello));
      if (peer.read(20'000).size() == sizeof(Answer)) return;  // else dropped as the oldest
    }
    ADD_FAILURE() << "a rank is kept out";
  }

 private:
  static Connections::Clock::time_point deadline() { return Connections::Clock::now() + kLong; }

  Neighbourhood where_;
  Key key_{};
  SocketAddress address_;
  std::vector<std::unique_ptr<Connections>> ranks_;
};

// What a process says that does not know the key of the group.
std::string sentence(Random& random, std::string_view said) {
  switch (random() % 3) {
    case 0: {
      Hello hello;
      hello.from = static_cast<std::int32_t>(random() % 4) - 1;
      hello.to = static_cast<std::int32_t>(random() % 3) - 1;
      hello.purpose = static_cast<Purpose>(random() % 4);
      hello.nonce = random_key();
      hello.proof = random_key();
      return bytes_of(hello);
    }
    case 1: {
      Answer answer{random() % 2 == 0 ? Answer::Kind::welcome : Answer::Kind::ended,
                    {ControlMessage::Kind::aborted, 1}};
      answer.nonce = random_key();
      return bytes_of(answer);
    }
    default:
      return std::string(said) + bytes_of(LastWord{{ControlMessage::Kind::lost, 1}, {}});
  }
}

class HostCampaignTest : public ::testing::TestWithParam<Neighbourhood> {};

TEST_P(HostCampaignTest, HostileConversationsDisturbNoRank) {
  TwoRanks ranks(GetParam());
  const HostileTarget target{ranks.address(), [&] { ranks.expect_undisturbed(); }, sentence,
                             2 * 2 + 64 + 2};
  testing::run_hostile_campaign(target, testing::campaign_rounds(500));
}

INSTANTIATE_TEST_SUITE_P(Places, HostCampaignTest,
                         ::testing::Values(Neighbourhood::machines, Neighbourhood::one_user),
                         [](const auto& info) {
                           return info.param == Neighbourhood::one_user ? "unix" : "tcp";
                         });

// Between two ranks a relay changes, repeats, drops and cuts.
TEST(HostRelayCampaignTest, NoChangedMessageIsReceived) {
  const int rounds = testing::campaign_rounds(1'000);
  Random random(testing::campaign_seed());
  int changed = 0;
  for (int round = 0; round < rounds; ++round) {
    RelayedStreams streams;
    std::vector<std::string> messages;
    std::vector<std::string> sent;
    for (int i = 0; i < 3; ++i) {
      messages.push_back(testing::random_bytes(random, random() % 8 == 0 ? 70'000 : 200));
      sent.push_back(streams.sent("", messages.back()));
    }
    if (random() % 4 == 0) std::swap(sent[random() % 3], sent[random() % 3]);
    std::string whole;
    for (const std::string& message : sent) whole += message;
    whole = testing::mutated(random, std::move(whole));
    for (const std::string& message : messages) {
      std::vector<std::byte> buffer(80'000);
      Incoming incoming{0, buffer};
      const HostStream::Outcome outcome = streams.deliver(whole, incoming);
      whole.clear();
      if (outcome != HostStream::Outcome::moved) {
        ++changed;
        break;
      }
      ASSERT_EQ(incoming.bytes, message.size());
      ASSERT_EQ(std::memcmp(buffer.data(), message.data(), message.size()), 0);
    }
  }
  EXPECT_GT(changed, rounds / 4);
}

}  // namespace
}  // namespace gantry
