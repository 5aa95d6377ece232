// Who may use a store: processes that are no part of the job, and ranks that are there twice.
#include "job/store/admission.hpp"
#include "job/store/messages.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/store.hpp>

#include "tests/job/store_peer.hpp"

namespace gantry {
namespace {

using std::chrono::milliseconds;
using store::Message;
using store::Writer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr milliseconds kLong{20'000};
const std::string kToken = "a secret of this job's ranks";

using Relay = testing::StoreRelay;
using Outsider = testing::StorePeer;

// What was written to descriptor 2 since the object was made.
class CapturedErrors {
 public:
  CapturedErrors() { ::testing::internal::CaptureStderr(); }
  std::string text() { return ::testing::internal::GetCapturedStderr(); }
};

class StoreAdmissionTest : public ::testing::Test {
 protected:
  StoreAdmissionTest()
      : server_(StoreServerOptions{.address = "tcp:127.0.0.1:0", .token = kToken}) {}

  StoreClientOptions options(int rank) const {
    return {.address = server_.address(), .rank = rank, .token = kToken, .connect_timeout = kLong};
  }

  StoreServer server_;
};

TEST_F(StoreAdmissionTest, OutsidersReadLoseAndPoisonNothing) {
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
  // All at once: each one's answer comes late.
  std::vector<Outsider> outsiders;
  for (const std::string& token : tokens) {
    for (const int who : {-1, 0, 1}) {
      for (const std::string& request : {get, set, deregister}) {
        outsiders.emplace_back(server_.address());
        outsiders.back().introduce(who, token);
        outsiders.back().send(request);
        if (outsiders.size() < store::Admission::kMaxUnintroduced / 2) continue;
        outsiders.clear();
      }
    }
  }
  for (Outsider& outsider : outsiders) {
    const std::string told = outsider.read_to_end();
    EXPECT_THAT(told, HasSubstr("its token is not this job's"));
    EXPECT_THAT(told, ::testing::Not(HasSubstr("secret value")));
  }
  // Nor without any hello.
  for (const std::string& request : {get, set, deregister}) {
    Outsider outsider(server_.address());
    outsider.send(request);
    EXPECT_EQ(outsider.read_to_end(), "");
  }
  EXPECT_EQ(rank.get("secret key", kLong), "secret value");
  EXPECT_THAT(server_.lost_ranks(), IsEmpty());
  EXPECT_THAT(server_.connected_ranks(), ElementsAre(0));
}

// Whose token is wrong, it cannot know.
TEST_F(StoreAdmissionTest, ARankWithAnotherTokenNamesTheReasonAtItsDeadline) {
  StoreClientOptions wrong = options(1);
  wrong.token = "a secret of another job's ranks";
  wrong.connect_timeout = milliseconds(100);
  EXPECT_THAT([&] { StoreClient client(wrong); },
              ThrowsMessage<TimeoutError>(::testing::AllOf(
                  HasSubstr("to answer within 100 ms, but the process at 127.0.0.1:"),
                  HasSubstr("does not have this token; another process may have the port, or "
                            "GANTRY_RDZV_TOKEN differs between the ranks"))));
  StoreClient(options(1)).set("key", "value");
}

// A process may take the port before the store does, and then say nothing for ever.
TEST_F(StoreAdmissionTest, ASilentProcessAtThePortDoesNotTakeTheStoresTime) {
  SocketAddress address = parse_socket_address("tcp:127.0.0.1:0");
  UniqueFd holder = listen_at(address);
  std::thread rank([&] {
    StoreClientOptions late = options(1);
    late.address = address.str();
    StoreClient(late).set("key", "value");
  });
  ASSERT_TRUE(await_ready(holder.get(), POLLIN, std::chrono::steady_clock::now() + kLong));
  const UniqueFd held(accept4(holder.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(held);
  holder.reset();
  const StoreServer store({.address = address.str(), .token = kToken});
  rank.join();
  StoreClientOptions reader = options(0);
  reader.address = store.address();
  EXPECT_EQ(StoreClient(reader).get("key", kLong), "value");
}

// What a process learns that listens at the port instead of the store, or stands between.
TEST_F(StoreAdmissionTest, AClientTellsNothingToAServerWithoutProof) {
  const Key lie = random_key();
  const std::string challenge =
      Writer(Message::challenge, 1).text(text_of(random_key())).text(text_of(lie)).finish();
  const std::string ok = Writer(Message::ok, 1).finish();
  const std::string refused = Writer(Message::refused, 1).text("go \x1b[31m away").finish();
  for (const std::string& answer : {challenge, ok, refused, std::string("SSH-2.0\r\n")}) {
    SocketAddress place = parse_socket_address("tcp:127.0.0.1:0");
    const UniqueFd listener = listen_at(place);
    std::string heard;
    std::thread thief([&] {
      if (!await_ready(listener.get(), POLLIN, std::chrono::steady_clock::now() + kLong)) return;
      const UniqueFd client(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      (void)::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      shutdown(client.get(), SHUT_WR);
      char chunk[4096];
      for (ssize_t got = 0; (got = recv(client.get(), chunk, sizeof chunk, 0)) > 0;) {
        heard.append(chunk, static_cast<std::size_t>(got));
      }
    });
    StoreClientOptions client = options(1);
    client.address = place.str();
    client.connect_timeout = milliseconds(200);
    EXPECT_THAT([&] { StoreClient made(client); },
                ThrowsMessage<TimeoutError>(::testing::AllOf(HasSubstr("the process at 127.0.0.1:"),
                                                             ::testing::Not(HasSubstr("\x1b")))));
    thief.join();
    // Its hello alone: a nonce, and no word that depends on the token.
    EXPECT_EQ(heard.size(), Outsider::hello({}).size());
    EXPECT_THAT(heard, ::testing::Not(HasSubstr(kToken)));
  }
}

// A proof is of one connection, one role and one rank.
TEST_F(StoreAdmissionTest, AProofOfAnotherConnectionRoleOrRankIsNone) {
  std::string recorded;
  {
    Outsider peer(server_.address());
    const auto greeted = peer.greet();
    ASSERT_TRUE(greeted);
    recorded = Outsider::prove(1, store::client_proof(kToken, greeted->first, 1));
    // The server's own proof, sent back.
    Key mirrored{};
    std::copy(greeted->second.begin(), greeted->second.end(), mirrored.begin());
    peer.send(Outsider::prove(1, mirrored));
    EXPECT_THAT(peer.read_to_end(), HasSubstr("its token is not this job's"));
  }
  {
    Outsider peer(server_.address());
    ASSERT_TRUE(peer.greet());
    peer.send(recorded);
    EXPECT_THAT(peer.read_to_end(), HasSubstr("its token is not this job's"));
  }
  {
    Outsider peer(server_.address());
    const auto greeted = peer.greet();
    ASSERT_TRUE(greeted);
    peer.send(Outsider::prove(2, store::client_proof(kToken, greeted->first, 1)));
    EXPECT_THAT(peer.read_to_end(), HasSubstr("its token is not this job's"));
  }
  EXPECT_THAT(server_.connected_ranks(), IsEmpty());
}

TEST_F(StoreAdmissionTest, WrongProofsAreAnsweredLateAndDelayNobody) {
  std::vector<Outsider> outsiders;
  for (int i = 0; i < 8; ++i) {
    outsiders.emplace_back(server_.address());
    outsiders.back().introduce(1, "another secret of the same length");
  }
  // The first one's answer comes behind all of this.
  StoreClient rank(options(1));
  for (int i = 0; i < 10; ++i) rank.set("key", "value");
  char byte = 0;
  EXPECT_EQ(recv(outsiders.back().descriptor(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_THAT(outsiders.front().read_to_end(), HasSubstr("its token is not this job's"));
}

TEST(StoreWrongProofTest, EachOneOfAHostIsAnsweredAfterTwiceThePauseUpToALimit) {
  SocketAddress place = parse_socket_address("tcp:127.0.0.1:0");
  const UniqueFd listener = listen_at(place);
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  auto guesser = connect_to(place, deadline);
  ASSERT_TRUE(guesser);
  store::Admission admission(place, kToken);
  for (const int pause : {100, 200, 400, 800, 1600, 3200, 5000, 5000}) {
    EXPECT_EQ(admission.note_failure(guesser->get()), milliseconds(pause));
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(admission.note_failure(guesser->get()), milliseconds(5000));
  }
  // A descriptor without an address is another host.
  EXPECT_EQ(admission.note_failure(-1), milliseconds(100));
}

TEST_F(StoreAdmissionTest, AClientOfAnotherVersionIsToldSo) {
  Outsider old(server_.address());
  // As version 3 did.
  old.send(Writer(Message::hello, 1).u32(0x33545347).i64(1).text(kToken).finish());
  EXPECT_THAT(old.read_to_end(), HasSubstr("another version of the store's protocol"));
}

// Turns 0 and 1 of each side are the handshake.
TEST_F(StoreAdmissionTest, ARelayCannotChangeRepeatOrAddRequests) {
  StoreClient observer(options(-1));
  observer.set("key", "right");
  const auto keep = [](std::string bytes, int) { return bytes; };
  {
    const Relay relay(server_.address(), keep, keep);
    StoreClientOptions through = options(1);
    through.address = relay.address();
    StoreClient client(through);
    client.set("key", "right");
    EXPECT_EQ(client.get("key", kLong), "right");
  }
  const auto swapped = [](std::string bytes, int turn) {
    const auto at = bytes.find("right");
    return turn < 2 || at == std::string::npos ? bytes : bytes.replace(at, 5, "wrong");
  };
  const auto repeated = [](std::string bytes, int turn) {
    return turn < 2 ? bytes : bytes + bytes;
  };
  const std::string poison = Writer(Message::set, 99).text("key").text("wrong").finish();
  const auto preceded = [&](std::string bytes, int turn) {
    return turn < 2 ? bytes : poison + bytes;
  };
  for (const Relay::Change& change :
       {Relay::Change(swapped), Relay::Change(repeated), Relay::Change(preceded)}) {
    const Relay relay(server_.address(), change, keep);
    StoreClientOptions through = options(-1);
    through.address = relay.address();
    StoreClient client(through);
    EXPECT_THROW(
        {
          client.set("key", "right");
          client.set("key", "right");
        },
        PeerLostError);
    EXPECT_EQ(observer.get("key", kLong), "right");
  }
}

TEST_F(StoreAdmissionTest, ARelayCannotChangeAnswers) {
  StoreClient observer(options(-1));
  observer.set("key", "right");
  const Relay relay(
      server_.address(), [](std::string bytes, int) { return bytes; },
      [](std::string bytes, int) {
        const auto at = bytes.find("right");
        return at == std::string::npos ? bytes : bytes.replace(at, 5, "wrong");
      });
  StoreClientOptions through = options(-1);
  through.address = relay.address();
  StoreClient client(through);
  EXPECT_THAT([&] { (void)client.get("key", kLong); },
              ThrowsMessage<PeerLostError>(HasSubstr("was changed on its way")));
}

TEST_F(StoreAdmissionTest, TheFirstThatIsTurnedAwayIsLoggedWithItsAddress) {
  CapturedErrors errors;
  for (int i = 0; i < 3; ++i) {
    Outsider outsider(server_.address());
    outsider.introduce(0, "wrong");
    (void)outsider.read_to_end();
  }
  const std::string text = errors.text();
  EXPECT_THAT(text, ::testing::ContainsRegex("turned away 127\\.0\\.0\\.1:[0-9]+: its token"));
  EXPECT_EQ(text.find("turned away"), text.rfind("turned away")) << text;
}

TEST_F(StoreAdmissionTest, ManyThatAreTurnedAwayFillNoLog) {
  const logging::Level before = logging::level();
  logging::set_level(logging::Level::debug);
  CapturedErrors errors;
  for (int i = 0; i < 300; ++i) {
    Outsider outsider(server_.address());
    outsider.send(Writer(Message::hello, 1).u32(0x33545347).i64(1).text(kToken).finish());
    (void)outsider.read_to_end();
  }
  const std::string text = errors.text();
  logging::set_level(before);
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = text.find("turned away", at)) != std::string::npos; ++at) ++lines;
  EXPECT_GE(lines, 1u);
  EXPECT_LE(lines, 30u) << text;
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

// Sends bytes that one recv() returns alone: it ends behind bytes that came with a descriptor.
void send_apart(int socket, std::string bytes) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec piece{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr& header = *CMSG_FIRSTHDR(&message);
  header.cmsg_level = SOL_SOCKET;
  header.cmsg_type = SCM_RIGHTS;
  header.cmsg_len = CMSG_LEN(sizeof socket);
  std::memcpy(CMSG_DATA(&header), &socket, sizeof socket);
  EXPECT_EQ(sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

// The server reads a part of what a client says at a time. A rank may come again while much of what
// it said before, and its request to deregister at last, is unread.
TEST(StoreRejoinTest, ARankThatHasLeftMayComeAgainBeforeTheServerKnows) {
  const std::string address = "unix:@gantry-test-" + std::to_string(getpid()) + "-rejoin";
  const std::string hello =
      Writer(Message::hello, 1).u32(store::kMagic).i64(1).text(kToken).finish();
  const auto take = [](Outsider& client) {
    const std::optional<std::string> body = client.receive();
    return body ? store::Reader(*body).kind() : Message::refused;
  };
  const pid_t server = fork();
  ASSERT_GE(server, 0);
  if (server == 0) {
    const StoreServer serving(StoreServerOptions{.address = address, .token = kToken});
    for (;;) pause();
  }
  std::optional<Outsider> older(address);
  older->send(hello);
  EXPECT_EQ(take(*older), Message::ok);
  EXPECT_EQ(kill(server, SIGSTOP), 0);
  int status = 0;
  EXPECT_EQ(waitpid(server, &status, WUNTRACED), server);
  EXPECT_TRUE(WIFSTOPPED(status));
  // It reads 16 pieces before it looks at other connections.
  for (int i = 0; i < 40; ++i) {
    send_apart(older->descriptor(), Writer(Message::set, 2).text("key").text("value").finish());
  }
  older->send(Writer(Message::deregister, 3).finish());
  Outsider newer(address);
  older.reset();
  newer.send(hello);
  EXPECT_EQ(kill(server, SIGCONT), 0);
  EXPECT_EQ(take(newer), Message::ok);
  EXPECT_EQ(kill(server, SIGKILL), 0);
  EXPECT_EQ(waitpid(server, nullptr, 0), server);
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
    std::vector<Outsider> outsiders;
    for (std::size_t i = 0; i < 2 * most; ++i) {
      outsiders.emplace_back(server_.address());
      // Half of a hello is no hello.
      if (i % 2 == 0) outsiders.back().send(Outsider::hello({}).substr(0, 20));
    }
    // The server has dropped those that came first.
    EXPECT_EQ(outsiders.front().read_to_end(), "");
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
  std::vector<Outsider> outsiders;
  for (int i = 0; i < 8; ++i) outsiders.emplace_back(server_.address());
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
          ThrowsMessage<InvalidArgument>(::testing::AllOf(
              HasSubstr("expected a secret of at least 16 bytes, the same on all ranks"),
              HasSubstr("export GANTRY_RDZV_TOKEN=$(cat /proc/sys/kernel/random/uuid)"))));
    }
  }
  const std::string here = "unix:@gantry-test-token-" + std::to_string(getpid());
  EXPECT_NO_THROW(StoreServer({.address = here}));
  EXPECT_THROW(StoreServer({.address = here, .token = std::string(1025, 'x')}), InvalidArgument);
}

TEST(StoreTokenTest, ATcpStoreNeedsOneThatCannotBeGuessed) {
  for (const std::string& weak :
       {std::string(16, 'a'), std::string(1000, 'a'), std::string("0123456789abcdef"),
        std::string("password12345678")}) {
    EXPECT_THAT([&] { StoreServer server({.address = "tcp:127.0.0.1:0", .token = weak}); },
                ThrowsMessage<InvalidArgument>(::testing::AllOf(
                    HasSubstr("expected a secret of at least 128 random bits, but got"),
                    HasSubstr("export GANTRY_RDZV_TOKEN=$(cat /proc/sys/kernel/random/uuid)"))));
  }
  EXPECT_NO_THROW(StoreServer({.address = "unix:@gantry-test-weak-" + std::to_string(getpid()),
                               .token = std::string(16, 'a')}));
}

}  // namespace
}  // namespace gantry
