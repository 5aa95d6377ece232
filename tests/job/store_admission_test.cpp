// Who may use a store: processes that are no part of the job, and ranks that are there twice.
#include "job/store/admission.hpp"
#include "job/store/messages.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>

namespace gantry {
namespace {

using std::chrono::milliseconds;
using store::Message;
using store::Writer;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

constexpr milliseconds kLong{20'000};
const std::string kToken = "a secret of this job's ranks";

std::string hello(int rank, std::string_view token) {
  return Writer(Message::hello, 1).u32(store::kMagic).i64(rank).text(token).finish();
}

// A process that speaks the protocol without being a rank.
class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    const SocketAddress place = parse_socket_address(address);
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (!fd_ && std::chrono::steady_clock::now() < deadline) {
      if (auto made = connect_to(place, deadline)) fd_ = std::move(*made);
    }
  }
  void send(std::string_view bytes) { ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // Everything that the server sends until it hangs up.
  std::string read_to_end() {
    std::string all;
    char chunk[4096];
    pollfd entry{fd_.get(), POLLIN, 0};
    for (;;) {
      if (poll(&entry, 1, 20'000) <= 0) return all + " (the server keeps the connection)";
      const ssize_t got = recv(fd_.get(), chunk, sizeof chunk, 0);
      if (got <= 0) return all;
      all.append(chunk, static_cast<std::size_t>(got));
    }
  }

 private:
  UniqueFd fd_;
};

// What was written to descriptor 2 since the object was made.
class CapturedErrors {
 public:
  CapturedErrors() { ::testing::internal::CaptureStderr(); }
  std::string text() { return ::testing::internal::GetCapturedStderr(); }
};

class StoreAdmissionTest : public testing::Test {
 protected:
  StoreAdmissionTest()
      : server_(StoreServerOptions{.address = "tcp:127.0.0.1:0", .token = kToken}) {}

  StoreClientOptions options(int rank) const {
    return {.address = server_.address(), .rank = rank, .token = kToken, .connect_timeout = kLong};
  }

  StoreServer server_;
};

TEST_F(StoreAdmissionTest, StrangersReadLoseAndPoisonNothing) {
  StoreClient rank(options(0));
  rank.set("secret key", "secret value");
  const std::string get = Writer(Message::get, 2).text("secret key").finish();
  const std::string set = Writer(Message::set, 2).text("secret key").text("poison").finish();
  const std::string deregister = Writer(Message::deregister, 0).finish();
  std::vector<std::string> tokens{"",
                                  "x",
                                  kToken.substr(1),
                                  kToken + "x",
                                  std::string(1024, 'x'),
                                  std::string(kToken.size(), '\0')};
  for (std::size_t i = 0; i < kToken.size(); ++i) {
    tokens.push_back(kToken);
    tokens.back()[i] = static_cast<char>(tokens.back()[i] ^ 1);
  }
  for (const std::string& token : tokens) {
    for (const int who : {-1, 0, 1}) {
      for (const std::string& request : {get, set, deregister}) {
        Stranger stranger(server_.address());
        stranger.send(hello(who, token) + request);
        const std::string told = stranger.read_to_end();
        EXPECT_THAT(told, HasSubstr("its token is not this job's"));
        EXPECT_THAT(told, testing::Not(HasSubstr("secret value")));
      }
    }
  }
  // Nor without any hello.
  for (const std::string& request : {get, set, deregister}) {
    Stranger stranger(server_.address());
    stranger.send(request);
    EXPECT_EQ(stranger.read_to_end(), "");
  }
  EXPECT_EQ(rank.get("secret key", kLong), "secret value");
  EXPECT_THAT(server_.lost_ranks(), IsEmpty());
  EXPECT_THAT(server_.connected_ranks(), ElementsAre(0));
}

TEST_F(StoreAdmissionTest, ARankWithAnotherTokenIsToldSo) {
  StoreClientOptions wrong = options(1);
  wrong.token = "a secret of another job's ranks";
  EXPECT_THAT(
      [&] { StoreClient client(wrong); },
      ThrowsMessage<PeerLostError>(HasSubstr("turned rank 1 away: its token is not this job's")));
  StoreClient(options(1)).set("key", "value");
}

TEST_F(StoreAdmissionTest, TheFirstThatIsTurnedAwayIsLoggedWithItsAddress) {
  CapturedErrors errors;
  for (int i = 0; i < 3; ++i) {
    Stranger stranger(server_.address());
    stranger.send(hello(0, "wrong"));
    (void)stranger.read_to_end();
  }
  const std::string text = errors.text();
  EXPECT_THAT(text, testing::ContainsRegex("turned away 127\\.0\\.0\\.1:[0-9]+: its token"));
  EXPECT_EQ(text.find("turned away"), text.rfind("turned away")) << text;
}

TEST_F(StoreAdmissionTest, ASecondConnectionOfARankIsTurnedAwayAndTheFirstStays) {
  StoreClient first(options(1));
  EXPECT_THAT(
      [&] { StoreClient second(options(1)); },
      ThrowsMessage<PeerLostError>(HasSubstr("turned rank 1 away: rank 1 is connected already")));
  first.set("key", "value");
  EXPECT_EQ(first.get("key", kLong), "value");
  EXPECT_THAT(server_.lost_ranks(), IsEmpty());
  EXPECT_THAT(server_.connected_ranks(), ElementsAre(1));
  // Observers are no ranks.
  StoreClient(options(-1)).set("seen", "by two");
  StoreClient(options(-1)).set("seen", "by two");
}

TEST_F(StoreAdmissionTest, ARankThatHasLeftMayComeAgain) {
  for (int i = 0; i < 200; ++i) StoreClient(options(1)).set("round", std::to_string(i));
  EXPECT_THAT(server_.lost_ranks(), IsEmpty());
}

TEST_F(StoreAdmissionTest, ManyThatSayNothingKeepNobodyOut) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const std::size_t most = store::Admission::kMaxUnintroduced;
  const auto needed = static_cast<rlim_t>(4 * most + 200);
  if (before.rlim_max < needed) GTEST_SKIP() << "needs " << needed << " open files";
  const rlimit wide{std::max(before.rlim_cur, needed), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &wide), 0);
  StoreClient early(options(0));
  {
    std::vector<Stranger> strangers;
    for (std::size_t i = 0; i < 2 * most; ++i) {
      strangers.emplace_back(server_.address());
      // Half of a hello is no hello.
      if (i % 2 == 0) strangers.back().send(hello(1, kToken).substr(0, 20));
    }
    // The server has dropped those that came first.
    EXPECT_EQ(strangers.front().read_to_end(), "");
    StoreClient late(options(1));
    late.set("key", "value");
    EXPECT_EQ(early.get("key", kLong), "value");
  }
  EXPECT_THAT(server_.lost_ranks(), IsEmpty());
  setrlimit(RLIMIT_NOFILE, &before);
}

// Descriptors may end before there are that many.
TEST_F(StoreAdmissionTest, SilentOnesGiveTheirDescriptorsToRanks) {
  StoreClient early(options(0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<Stranger> strangers;
  for (int i = 0; i < 8; ++i) strangers.emplace_back(server_.address());
  // The server has accepted them: what it answers comes after.
  for (int i = 0; i < 50; ++i) early.set("key", "value");
  StoreClientOptions late = options(1);
  {
    // Room for a client's two descriptors alone: the server has none left for its end.
    const UniqueFd next(dup(STDERR_FILENO));
    const rlimit tight{static_cast<rlim_t>(next.get() + 2), before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  }
  EXPECT_NO_THROW(StoreClient(late).set("late", "there"));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(early.get("late", kLong), "there");
}

TEST(StoreTokenTest, ATcpStoreNeedsOneAndSaysHowToMakeIt) {
  for (const char* host : {"127.0.0.1", "0.0.0.0", "[::1]"}) {
    for (const char* token : {"", "short"}) {
      EXPECT_THAT(
          [&] {
            StoreServer server({.address = std::string("tcp:") + host + ":0", .token = token});
          },
          ThrowsMessage<InvalidArgument>(testing::AllOf(
              HasSubstr("expected a secret of at least 16 bytes, the same on all ranks"),
              HasSubstr("export GANTRY_RDZV_TOKEN=$(cat /proc/sys/kernel/random/uuid)"))));
    }
  }
  const std::string here = "unix:@gantry-test-token-" + std::to_string(getpid());
  EXPECT_NO_THROW(StoreServer({.address = here}));
  EXPECT_THROW(StoreServer({.address = here, .token = std::string(1025, 'x')}), InvalidArgument);
}

TEST(StoreTokenTest, EqualSecretsAreEqualStrings) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string a(random() % 5, '\0');
    std::string b(random() % 5, '\0');
    for (char& byte : a) byte = static_cast<char>(random() % 2);
    for (char& byte : b) byte = static_cast<char>(random() % 2);
    EXPECT_EQ(store::equal_secrets(a, b), a == b);
    EXPECT_TRUE(store::equal_secrets(a, a));
  }
}

}  // namespace
}  // namespace gantry
