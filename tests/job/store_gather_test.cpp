// The values of all members of a group, in one request.
#include <gantry/extend/store.hpp>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>

#include "core/files/socket.hpp"
#include "job/store/membership.hpp"
#include "job/store/messages.hpp"

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

TEST_F(StoreGatherTest, AGatherWaitsOnlyWhileAsManyHaveEndedAsItSays) {
  const auto client = connect(0);
  const auto end = [&](int rank, const std::string& all) {
    connect(rank)->set("x", "");  // deregisters
    server_.mark_ended(rank);
    while (client->try_get(store::kEndedKey) != all) std::this_thread::yield();
  };
  const auto message = [&](std::uint32_t ends) {
    try {
      static_cast<void>(client->gather("g", 2, kLong, ends));
    } catch (const TimeoutError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto is_outdated =
      HasSubstr("Store::gather: expected 2 keys of 'g', but a rank has ended meanwhile");
  // It is parked, or it comes behind the end.
  std::future<std::string> parked = std::async(std::launch::async, [&] { return message(0); });
  end(1, "1 ");
  EXPECT_THAT(parked.get(), is_outdated);
  end(2, "1 2 ");
  for (const std::uint32_t other : {0U, 1U, 3U}) EXPECT_THAT(message(other), is_outdated) << other;
  auto waiting = std::async(std::launch::async, [&] { return client->gather("g", 2, kLong, 2); });
  for (const char* key : {"g/0", "g/1"}) client->set(key, key);
  EXPECT_THAT(waiting.get().value(), ElementsAre("g/0", "g/1"));
  EXPECT_THAT(client->gather("g", 2, kLong, 0).value(), ElementsAre("g/0", "g/1"))
      << "all is there";
}

TEST_F(StoreGatherTest, AnExchangeWritesAndGathersInOneRequest) {
  const auto first = connect(0);
  const auto second = connect(1);
  first->set("x/0/1", "an old round");
  const std::uint64_t before = server_.request_count();
  auto waiting = std::async(
      std::launch::async, [&] { return first->exchange("x/2", 2, 0, "zero", kLong, {}, "x/0/1"); });
  EXPECT_THAT(second->exchange("x/2", 2, 1, "one", kLong).value(), ElementsAre("zero", "one"));
  EXPECT_THAT(waiting.get().value(), ElementsAre("zero", "one"));
  EXPECT_EQ(server_.request_count() - before, 2U);
  EXPECT_EQ(first->try_get("x/0/1"), std::nullopt);
}

TEST_F(StoreGatherTest, AnExchangeThatEndsOtherwiseHasWritten) {
  const auto first = connect(0);
  EXPECT_THROW((void)first->exchange("x", 2, 0, "zero", milliseconds(20)), TimeoutError);
  EXPECT_EQ(first->try_get("x/0"), "zero");
  connect(1)->abandon();
  try {
    (void)first->exchange("x", 2, 0, "again", kLong);
    ADD_FAILURE() << "expected the loss of rank 1";
  } catch (const PeerLostError& error) {
    EXPECT_EQ(error.rank(), 1);
  }
  EXPECT_EQ(first->try_get("x/0"), "again");
}

TEST_F(StoreGatherTest, AnExchangeChecksItsArguments) {
  const auto client = connect(0);
  const auto text_of = [&](auto call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "(nothing was thrown)";
  };
  EXPECT_EQ(text_of([&] { (void)client->exchange("x", 2, 2, "", kLong); }),
            "Store::exchange: expected a number from 0 to 1, but got 2");
  EXPECT_EQ(text_of([&] { (void)client->exchange("x", 2, -1, "", kLong); }),
            "Store::exchange: expected a number from 0 to 1, but got -1");
  EXPECT_EQ(text_of([&] { (void)client->exchange("x", 0, 0, "", kLong); }),
            "Store::exchange: expected a count of at least 1, but got 0");
  EXPECT_THAT(text_of([&] { (void)client->exchange("", 1, 0, "", kLong); }),
              HasSubstr("expected a key of 1 to 1024 bytes, but got 0"));
  const std::string long_value(kStoreMaxValueBytes + 1, 'x');
  EXPECT_THAT(text_of([&] { (void)client->exchange("x", 1, 0, long_value, kLong); }),
              HasSubstr("expected a value of at most 16777216 bytes"));
  EXPECT_THAT(
      text_of([&] { (void)client->exchange("x", 1, 0, "", kLong, {}, std::string(1025, 'k')); }),
      HasSubstr("expected a key of 1 to 1024 bytes, but got 1025"));
  EXPECT_EQ(client->try_get("x/0"), std::nullopt);
}

TEST_F(StoreGatherTest, TheServerRefusesAMalformedExchange) {
  using store::Message;
  using store::Writer;
  struct Fields {
    std::uint32_t count;
    std::uint32_t number;
  };
  for (const Fields& fields : {Fields{0, 0}, Fields{2, 2}, Fields{1U << 30, 0}}) {
    const UniqueFd raw = connect_to(parse_socket_address(server_.address()),
                                    std::chrono::steady_clock::now() + kLong)
                             .value();
    const std::string bytes =
        Writer(Message::hello, 1).u32(store::kMagic).i64(-1).text("").finish() +
        Writer(Message::exchange, 2)
            .text("x")
            .u32(fields.count)
            .i64(-1)
            .u32(fields.number)
            .text("v")
            .text("")
            .finish();
    ASSERT_EQ(send(raw.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    fcntl(raw.get(), F_SETFL, 0);
    char answer[64];
    ssize_t got = 0;
    std::size_t all = 0;
    while ((got = recv(raw.get(), answer, sizeof answer, 0)) > 0)
      all += static_cast<std::size_t>(got);
    EXPECT_EQ(got, 0);        // the server closed the connection
    EXPECT_EQ(all, 4U + 9U);  // after it answered the hello only
  }
}

// A reply that the socket does not take at once arrives whole.
TEST_F(StoreGatherTest, LongRepliesArriveInOrder) {
  const auto client = connect(0);
  std::string value(std::size_t{4} << 20, '\0');
  for (std::size_t i = 0; i < value.size(); ++i)
    value[i] = static_cast<char>(i * 2654435761U >> 13);
  client->set("long", value);
  std::vector<std::future<std::string>> reads;
  for (int i = 0; i < 8; ++i) {
    reads.push_back(std::async(std::launch::async, [&] { return client->get("long", kLong); }));
  }
  for (auto& read : reads) EXPECT_EQ(read.get(), value);
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
