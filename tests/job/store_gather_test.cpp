// The values of all members of a group, in one request.
#include <gantry/extend/store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>

#include <gantry/core/error.hpp>

namespace gantry {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr milliseconds kLong{20'000};

class StoreGatherTest : public testing::Test {
 protected:
  std::unique_ptr<StoreClient> connect(int rank) const {
    return std::make_unique<StoreClient>(server_.address(), rank);
  }

  StoreServer server_{
      StoreServerOptions{.address = "unix:@gantry-test-gather-" + std::to_string(getpid())}};
};

TEST_F(StoreGatherTest, AGatherHasTheValuesOfAllMembers) {
  const auto first = connect(0);
  const auto second = connect(1);
  auto waiting = std::async(std::launch::async, [&] { return second->gather("g/1", 3, kLong); });
  // Members come in any order; other groups and rounds do not count.
  first->set("g/1/2", "two");
  first->set("g/10/0", "another round");
  first->set("g/1/0", "zero");
  EXPECT_THROW((void)first->gather("g/1", 3, milliseconds(20)), TimeoutError);
  first->set("g/1/1", "");
  EXPECT_THAT(waiting.get().value(), ElementsAre("zero", "", "two"));
  EXPECT_THAT(first->gather("g/1", 3, kLong).value(), ElementsAre("zero", "", "two"));
  // Fewer members, an overwritten value, an erased one.
  EXPECT_THAT(first->gather("g/1", 2, kLong).value(), ElementsAre("zero", ""));
  first->set("g/1/1", "one");
  EXPECT_THAT(first->gather("g/1", 2, kLong).value(), ElementsAre("zero", "one"));
  EXPECT_TRUE(first->erase("g/1/0"));
  EXPECT_THROW((void)first->gather("g/1", 3, milliseconds(20)), TimeoutError);
  EXPECT_THROW((void)first->gather("", 3, kLong), InvalidArgument);
  EXPECT_THROW((void)first->gather("g", 0, kLong), InvalidArgument);
}

TEST_F(StoreGatherTest, AGatherOfLongValuesIsNoMessage) {
  const auto client = connect(0);
  client->set("g/0", std::string(kStoreMaxValueBytes, 'x'));
  client->set("g/1", "");
  EXPECT_EQ(client->gather("g", 2, kLong), std::nullopt);
  client->set("g/0", std::string(kStoreMaxValueBytes - 8, 'x'));
  EXPECT_EQ(client->gather("g", 2, kLong).value()[0].size(), kStoreMaxValueBytes - 8);
}

TEST_F(StoreGatherTest, ALossEndsAGather) {
  const auto first = connect(0);
  const auto second = connect(1);
  auto waiting = std::async(std::launch::async, [&]() -> std::string {
    try {
      (void)first->gather("g", 2, kLong);
    } catch (const PeerLostError& error) {
      return error.what();
    }
    return "(nothing was thrown)";
  });
  first->set("g/0", "x");
  second->abandon();
  EXPECT_THAT(waiting.get(), HasSubstr("but rank 1 left the job"));
  // What is there can still be read.
  first->set("g/1", "y");
  EXPECT_THAT(first->gather("g", 2, kLong).value(), ElementsAre("x", "y"));
}

TEST_F(StoreGatherTest, TheNumberOfRequestsDoesNotGrowWithTheGroup) {
  constexpr int kMembers = 32;
  std::vector<std::unique_ptr<StoreClient>> clients;
  for (int rank = 0; rank < kMembers; ++rank) clients.push_back(connect(rank));
  const std::uint64_t before = server_.request_count();
  for (int rank = 0; rank < kMembers; ++rank) {
    clients[static_cast<std::size_t>(rank)]->set("g/" + std::to_string(rank), "v");
  }
  for (const auto& client : clients) {
    EXPECT_EQ(client->gather("g", kMembers, kLong).value().size(), std::size_t{kMembers});
  }
  EXPECT_EQ(server_.request_count() - before, 2U * kMembers);
}

}  // namespace
}  // namespace gantry
