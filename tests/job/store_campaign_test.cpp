// Hostile conversations with stores, and changed messages between a store and its clients.
// GANTRY_TEST_ROUNDS makes them more, GANTRY_TEST_SEED others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>

#include "job/store/admission.hpp"
#include "tests/job/store_peer.hpp"
#include "tests/support/hostile_peer.hpp"

namespace gantry {
namespace {

using store::Message;
using store::Writer;
using testing::HostileTarget;
using ::testing::IsEmpty;
using testing::Random;
using testing::StorePeer;
using testing::StoreRelay;

constexpr std::chrono::seconds kLong{60};
const std::string kToken = "0123456789abcdef0123456789abcdef";

// A request with fields of any value.
std::string request(Random& random) {
  static constexpr Message kKinds[] = {
      Message::hello, Message::deregister, Message::set,    Message::get,    Message::try_get,
      Message::add,   Message::erase,      Message::wait,   Message::cancel, Message::gather,
      Message::prove, Message::exchange,   Message::refused};
  Writer message(kKinds[random() % std::size(kKinds)], random() % 3);
  for (unsigned fields = random() % 4; fields > 0; --fields) {
    switch (random() % 3) {
      case 0:
        message.u32(static_cast<std::uint32_t>(random() % 2 == 0 ? random() : random() % 4));
        break;
      case 1:
        message.i64(static_cast<std::int64_t>(random()) - 0x7fffffff);
        break;
      default:
        message.text(random() % 2 == 0 ? std::string("right") : testing::random_bytes(random, 100));
        break;
    }
  }
  return message.finish();
}

// What a client says that does not know the token.
std::string sentence(Random& random, std::string_view /*said*/) {
  switch (random() % 4) {
    case 0:
      return StorePeer::hello(random_key());
    case 1:
      return StorePeer::hello(random_key()) + StorePeer::prove(1, random_key());
    case 2:
      return Writer(Message::hello, 1).u32(store::kMagic).i64(1).text("another token").finish();
    default:
      return request(random);
  }
}

class StoreCampaignTest : public ::testing::TestWithParam<const char*> {
 protected:
  StoreCampaignTest() : server_({.address = address(), .token = kToken}), rank_(options(0)) {
    rank_.set("right", "value");
  }

  static std::string address() {
    const std::string form = GetParam();
    return form == "tcp" ? "tcp:127.0.0.1:0"
                         : "unix:@gantry-test-campaign-" + std::to_string(getpid());
  }
  StoreClientOptions options(int rank) const {
    return {.address = server_.address(), .rank = rank, .token = kToken, .connect_timeout = kLong};
  }
  void expect_undisturbed() {
    rank_.set("alive", "yes");
    EXPECT_EQ(rank_.get("right", kLong), "value");
    // A rank that comes while strangers do.
    StoreClient(options(1)).set("late", "too");
    EXPECT_THAT(server_.lost_ranks(), IsEmpty());
  }

  StoreServer server_;
  StoreClient rank_;
};

TEST_P(StoreCampaignTest, HostileConversationsDisturbNoRank) {
  const HostileTarget target{parse_socket_address(server_.address()),
                             [this] { expect_undisturbed(); }, sentence,
                             static_cast<int>(store::Admission::kMaxUnintroduced) + 4};
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto needed = static_cast<rlim_t>(12 * target.most_guests + 200);
  if (before.rlim_max < needed) GTEST_SKIP() << "needs " << needed << " open files";
  const rlimit wide{std::max(before.rlim_cur, needed), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &wide), 0);
  testing::run_hostile_campaign(target, testing::campaign_rounds(500));
  setrlimit(RLIMIT_NOFILE, &before);
}

INSTANTIATE_TEST_SUITE_P(Transports, StoreCampaignTest, ::testing::Values("tcp", "unix"),
                         [](const auto& info) { return std::string(info.param); });

// Between a client and its store a relay changes, repeats, drops and cuts.
TEST(StoreRelayCampaignTest, NoChangedMessageIsTaken) {
  const StoreServer server({.address = "tcp:127.0.0.1:0", .token = kToken});
  StoreClient observer({.address = server.address(), .token = kToken});
  observer.set("key", "right");
  const int rounds = testing::campaign_rounds(150);
  Random seeds(testing::campaign_seed());
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    Random random(static_cast<unsigned>(seeds()));
    const int when = static_cast<int>(random() % 6);
    const bool of_client = random() % 2 == 0;
    const StoreRelay::Change keep = [](std::string bytes, int) { return bytes; };
    const StoreRelay::Change change = [random, when](std::string bytes, int turn) mutable {
      return turn == when ? testing::mutated(random, std::move(bytes)) : bytes;
    };
    const StoreRelay relay(server.address(), of_client ? change : keep, of_client ? keep : change);
    try {
      StoreClient client({.address = relay.address(),
                          .token = kToken,
                          .connect_timeout = std::chrono::milliseconds(50),
                          .call_timeout = std::chrono::milliseconds(50)});
      for (int i = 0; i < 2; ++i) {
        client.set("key", "right");
        EXPECT_EQ(client.get("key", std::chrono::milliseconds(50)), "right");
      }
    } catch (const Error&) {
      ++refused;  // lost or late
    }
    EXPECT_EQ(observer.get("key", kLong), "right");
  }
  EXPECT_GT(refused, 0);
  EXPECT_THAT(server.lost_ranks(), IsEmpty());
}

}  // namespace
}  // namespace gantry
