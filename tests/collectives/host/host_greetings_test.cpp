// How ranks that connect greet each other, with a rank that is this test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "collectives/host/links/connections.hpp"
#include "collectives/host/links/stream.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

using testing::expect_throws;

constexpr std::chrono::seconds kLong{60};

// Rank 0 of two, whose rank 1 is this test. Rank 0 accepts from rank 1, so nothing connects yet.
class LonelyConnections {
 public:
  explicit LonelyConnections(int port) {
    RankAddress own;
    LinkDescriptors descriptors = open_descriptors(own);
    RankAddress other = own;
    other.port = port;
    port_ = own.port;
    const std::vector addresses{own.str(), other.str()};
    key_ = group_key({}, addresses);
    connections_ =
        std::make_unique<Connections>(LinkGroup{0, 2, kLong}, addresses, std::move(descriptors));
  }
  Connections& operator*() { return *connections_; }
  Connections* operator->() { return connections_.get(); }

  // A greeting of `from` with its proof under `key`.
  static Hello greeting(const Key& key, int from, Purpose purpose = Purpose::control) {
    Hello hello;
    hello.from = from;
    hello.purpose = purpose;
    hello.nonce = random_key();
    hello.proof = ConnectionKey(key, hello).proof_of(hello);
    return hello;
  }
  // Sends a greeting, and returns the answer: the number of bytes that came. Then sends `word`.
  std::size_t greet(const Hello& hello, Answer& answer, const LastWord* word = nullptr) const {
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    const auto socket = connect_to(
        {.kind = SocketAddress::Kind::tcp, .name = "127.0.0.1", .port = port_}, deadline);
    if (!socket || send(socket->get(), &hello, sizeof hello, MSG_NOSIGNAL) < 0) return 0;
    (void)await_ready(socket->get(), POLLIN, deadline);
    const ssize_t got = recv(socket->get(), &answer, sizeof answer, 0);
    if (word != nullptr) (void)send(socket->get(), word, sizeof *word, MSG_NOSIGNAL);
    return got < 0 ? 0 : static_cast<std::size_t>(got);
  }
  // The key of the group.
  const Key& key() const { return key_; }
  int port() const { return port_; }

 private:
  int port_ = 0;
  Key key_{};
  std::unique_ptr<Connections> connections_;
};

LinkFailure await_failure(LonelyConnections& connections) {
  (void)connections->await_end(1, std::chrono::steady_clock::now() + kLong);
  return connections->why_broken().value_or(LinkFailure{});
}

TEST(HostGreetingsTest, ARankWhosePortRefusesIsLost) {
  SocketAddress gone{.kind = SocketAddress::Kind::tcp, .name = "127.0.0.1", .port = 0};
  listen_at(gone).reset();
  LonelyConnections rank(gone.port);
  rank->request(1);
  const LinkFailure failure = await_failure(rank);
  EXPECT_EQ(failure.message.kind, ControlMessage::Kind::lost);
  EXPECT_EQ(failure.message.failed_rank, 1);
  EXPECT_THAT(failure.text, ::testing::HasSubstr("no way to rank 1 at port"));
  EXPECT_THAT(failure.text, ::testing::HasSubstr("(Connection refused)"));
}

TEST(HostGreetingsTest, AbortAndEndDoNotWaitForAConnectionThatIsBeingMade) {
  SocketAddress silent{.kind = SocketAddress::Kind::tcp, .name = "127.0.0.1", .port = 0};
  const Socket listener = listen_at(silent);
  for (const bool aborts : {true, false}) {
    LonelyConnections rank(silent.port);
    rank->request(1);
    // The greeting is on its way, and is never answered.
    ASSERT_TRUE(await_ready(listener.get(), POLLIN, std::chrono::steady_clock::now() + kLong));
    const Socket accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello;
    ASSERT_EQ(recv(accepted.get(), &hello, sizeof hello, MSG_WAITALL),
              static_cast<ssize_t>(sizeof hello));
    EXPECT_EQ(hello.to, 1);
    EXPECT_FALSE(rank->why_broken());
    if (aborts) rank->notify({ControlMessage::Kind::aborted, 0});
  }
}

// Its end without a message would mean that the rank died.
TEST(HostGreetingsTest, ARankThatStopsSaysSoOnAConnectionThatIsBeingMade) {
  SocketAddress slow{.kind = SocketAddress::Kind::tcp, .name = "127.0.0.1", .port = 0};
  const Socket listener = listen_at(slow);
  for (const auto kind : {ControlMessage::Kind::aborted, ControlMessage::Kind::left}) {
    auto rank = std::make_unique<LonelyConnections>(slow.port);
    (*rank)->request(1);
    ASSERT_TRUE(await_ready(listener.get(), POLLIN, std::chrono::steady_clock::now() + kLong));
    const Socket accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello;
    ASSERT_EQ(recv(accepted.get(), &hello, sizeof hello, MSG_WAITALL),
              static_cast<ssize_t>(sizeof hello));
    if (kind == ControlMessage::Kind::aborted) (*rank)->notify({kind, 0});
    const Key key = rank->key();
    rank.reset();  // which says that the rank has left, unless it has said something else
    LastWord word;
    ASSERT_EQ(recv(accepted.get(), &word, sizeof word, MSG_WAITALL),
              static_cast<ssize_t>(sizeof word));
    EXPECT_TRUE(is_authentic(ConnectionKey(key, hello), LinkSide::dialler, word));
    EXPECT_EQ(word.message.kind, kind);
    EXPECT_EQ(word.message.failed_rank, 0);
    EXPECT_EQ(recv(accepted.get(), &word, sizeof word, 0), 0);
  }
}

TEST(HostGreetingsTest, ARankThatStopsSaysWhyToWhoeverConnects) {
  SocketAddress ending{.kind = SocketAddress::Kind::tcp, .name = "127.0.0.1", .port = 0};
  const Socket listener = listen_at(ending);
  LonelyConnections rank(ending.port);
  rank->request(1);
  ASSERT_TRUE(await_ready(listener.get(), POLLIN, std::chrono::steady_clock::now() + kLong));
  const Socket accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  Hello hello;
  ASSERT_EQ(recv(accepted.get(), &hello, sizeof hello, MSG_WAITALL),
            static_cast<ssize_t>(sizeof hello));
  Answer answer{Answer::Kind::ended, {ControlMessage::Kind::late, 7}};
  answer.proof = ConnectionKey(rank.key(), hello).proof_of(answer);
  ASSERT_GT(send(accepted.get(), &answer, sizeof answer, MSG_NOSIGNAL), 0);
  const LinkFailure failure = await_failure(rank);
  EXPECT_EQ(failure.message.kind, ControlMessage::Kind::late);
  EXPECT_EQ(failure.message.failed_rank, 7);
  EXPECT_EQ(failure.from, 1);
  // This rank stops, too, and answers so.
  Answer own;
  ASSERT_EQ(rank.greet(rank.greeting(rank.key(), 1), own), sizeof own);
  EXPECT_EQ(own.kind, Answer::Kind::ended);
  EXPECT_EQ(own.message.failed_rank, 7);
}

TEST(HostGreetingsTest, GreetingsOfOtherUsersGetNoAnswerAndChangeNothing) {
  LonelyConnections rank(1);
  Answer answer;
  EXPECT_EQ(rank.greet(rank.greeting(random_key(), 1), answer), 0u);
  EXPECT_EQ(rank.greet(rank.greeting(rank.key(), 0), answer), 0u);
  EXPECT_EQ(rank.greet(rank.greeting(rank.key(), 2), answer), 0u);
  // A proof is of all that stands before it.
  const Hello authentic = rank.greeting(rank.key(), 1);
  Hello changed = authentic;
  changed.purpose = Purpose::data;
  EXPECT_EQ(rank.greet(changed, answer), 0u);
  changed = authentic;
  changed.nonce[0] ^= 1;
  EXPECT_EQ(rank.greet(changed, answer), 0u);
  EXPECT_FALSE(rank->why_broken());
  ASSERT_EQ(rank.greet(authentic, answer), sizeof answer);
  EXPECT_EQ(answer.kind, Answer::Kind::welcome);
  EXPECT_EQ(answer.proof, ConnectionKey(rank.key(), authentic).proof_of(answer));
}

// A rank gives up an address that answers late. The other rank may accept that connection later.
TEST(HostGreetingsTest, AConnectionThatIsGivenUpIsNoRankThatDied) {
  LonelyConnections rank(1);
  for (const Purpose purpose : {Purpose::control, Purpose::data}) {
    for (int tries = 0; tries < 3; ++tries) {
      Answer answer;
      const Hello hello = rank.greeting(rank.key(), 1, purpose);
      ASSERT_EQ(rank.greet(hello, answer), sizeof answer);
      EXPECT_EQ(answer.kind, Answer::Kind::welcome);
    }
  }
  EXPECT_FALSE(rank->why_broken());
  EXPECT_TRUE(rank->take_data().empty());
}

TEST(HostGreetingsTest, TheEndOfAConfirmedConnectionIsTheEndOfItsRank) {
  for (const bool is_authentic : {true, false}) {
    LonelyConnections rank(1);
    Answer answer;
    const Hello hello = rank.greeting(rank.key(), 1);
    const ConnectionKey key(is_authentic ? rank.key() : random_key(), hello);
    const LastWord word =
        key.last_word(LinkSide::dialler, {ControlMessage::Kind::confirmed, hello.from});
    ASSERT_EQ(rank.greet(hello, answer, &word), sizeof answer);
    const LinkFailure failure = await_failure(rank);
    EXPECT_EQ(failure.message.kind,
              is_authentic ? ControlMessage::Kind::lost : ControlMessage::Kind::aborted);
    EXPECT_EQ(failure.message.failed_rank, is_authentic ? 1 : 0);
  }
}

TEST(HostGreetingsTest, AGreetingThatWasRecordedGetsNoAnswer) {
  LonelyConnections rank(1);
  Answer answer;
  const Hello hello = rank.greeting(rank.key(), 1);
  ASSERT_EQ(rank.greet(hello, answer), sizeof answer);
  EXPECT_EQ(rank.greet(hello, answer), 0u);
}

TEST(HostGreetingsTest, TheKeyOfAGroupIsOfItsSecretAndOfAllAddresses) {
  const Key key = group_key({}, {"a", "b"});
  EXPECT_NE(group_key({}, {"a", "c"}), key);
  EXPECT_NE(group_key({}, {"b", "a"}), key);
  EXPECT_NE(group_key({}, {"ab"}), key);
  EXPECT_NE(group_key(random_key(), {"a", "b"}), key);
  EXPECT_EQ(group_key({}, {"a", "b"}), key);
}

TEST(HostGreetingsTest, ValuesOfTheSwitchForEncryptionAreChecked) {
  for (const auto& [value, expected] : {std::pair{"on", true}, {"1", true}, {"off", false}}) {
    setenv("GANTRY_HOST_CRYPT", value, 1);
    RankAddress address;
    (void)open_descriptors(address);
    EXPECT_EQ(address.encrypts, expected);
    EXPECT_EQ(RankAddress::parse(address.str()).encrypts, expected);
    EXPECT_EQ(RankAddress::parse(address.str()).hosts, address.hosts);
  }
  setenv("GANTRY_HOST_CRYPT", "maybe", 1);
  RankAddress address;
  expect_throws<InvalidArgument>([&] { (void)open_descriptors(address); }, "GANTRY_HOST_CRYPT");
  unsetenv("GANTRY_HOST_CRYPT");
}

TEST(HostGreetingsTest, MessagesAreEncryptedIfOneOfTheTwoRanksWantsIt) {
  for (const auto& [first, second] : {std::pair{false, false}, {true, false}, {false, true}}) {
    std::array<RankAddress, 2> own;
    std::array<LinkDescriptors, 2> descriptors{open_descriptors(own[0]), open_descriptors(own[1])};
    own[0].encrypts = first;
    own[1].encrypts = second;
    const std::vector addresses{own[0].str(), own[1].str()};
    Connections left(LinkGroup{0, 2, kLong}, addresses, std::move(descriptors[0]));
    Connections right(LinkGroup{1, 2, kLong}, addresses, std::move(descriptors[1]));
    left.request(1);
    const auto taken = [](Connections& connections) {
      pollfd news{connections.news(), POLLIN, 0};
      for (;;) {
        EXPECT_EQ(poll(&news, 1, 60'000), 1);
        connections.clear_news();
        std::vector<NewData> made = connections.take_data();
        if (!made.empty()) return std::move(made.front());
      }
    };
    NewData here = taken(left);
    NewData there = taken(right);
    const Secrecy expected = first || second ? Secrecy::encrypted : Secrecy::open;
    EXPECT_EQ(here.tags.value().secrecy, expected);
    EXPECT_EQ(there.tags.value().secrecy, expected);
    HostStream from;
    HostStream to;
    from.connect(std::move(here.socket), std::move(here.tags));
    to.connect(std::move(there.socket), std::move(there.tags));
    const std::string body(1'000'000, 'x');
    std::vector<std::byte> buffer(body.size());
    Incoming message{0, buffer};
    from.queue({1, std::as_bytes(std::span(body))});
    to.await(message);
    while (to.awaited() > 0) {
      (void)from.progress();
      ASSERT_NE(to.progress(), HostStream::Outcome::forged);
    }
    EXPECT_EQ(std::memcmp(buffer.data(), body.data(), body.size()), 0);
  }
}

// A process that has the port of a rank does not become that rank, whatever it answers.
TEST(HostGreetingsTest, AnAnswerWithoutProofIsNone) {
  SocketAddress foreign{.kind = SocketAddress::Kind::tcp, .name = "127.0.0.1", .port = 0};
  const Socket listener = listen_at(foreign);
  LonelyConnections rank(foreign.port);
  rank->request(1);
  for (const auto kind : {Answer::Kind::welcome, Answer::Kind::crossed, Answer::Kind::ended}) {
    ASSERT_TRUE(await_ready(listener.get(), POLLIN, std::chrono::steady_clock::now() + kLong));
    const Socket accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello;
    ASSERT_EQ(recv(accepted.get(), &hello, sizeof hello, MSG_WAITALL),
              static_cast<ssize_t>(sizeof hello));
    Answer answer{kind, {ControlMessage::Kind::late, 7}};
    answer.nonce = random_key();
    // Its own proof, sent back.
    answer.proof = hello.proof;
    ASSERT_GT(send(accepted.get(), &answer, sizeof answer, MSG_NOSIGNAL), 0);
    // Hung up on.
    EXPECT_EQ(recv(accepted.get(), &hello, sizeof hello, 0), 0);
  }
  EXPECT_TRUE(rank->take_data().empty());
}

// The rank accepted the connection, or made it.
TEST(HostGreetingsTest, ALastWordOfAConfirmedConnectionHasItsSendersTag) {
  const auto expect_refused = [](LonelyConnections& rank) {
    const LinkFailure failure = await_failure(rank);
    EXPECT_EQ(failure.message.kind, ControlMessage::Kind::aborted);
    EXPECT_EQ(failure.message.failed_rank, 0);
    EXPECT_THAT(failure.text, ::testing::HasSubstr("a message of rank 1 was changed on its way"));
  };
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  for (const auto kind : {ControlMessage::Kind::lost, ControlMessage::Kind::left}) {
    {
      LonelyConnections rank(1);
      const Hello hello = rank.greeting(rank.key(), 1);
      const ConnectionKey key(rank.key(), hello);
      const auto socket = connect_to(
          {.kind = SocketAddress::Kind::tcp, .name = "127.0.0.1", .port = rank.port()}, deadline);
      ASSERT_TRUE(socket);
      ASSERT_GT(send(socket->get(), &hello, sizeof hello, MSG_NOSIGNAL), 0);
      Answer answer;
      ASSERT_TRUE(await_ready(socket->get(), POLLIN, deadline));
      ASSERT_EQ(recv(socket->get(), &answer, sizeof answer, 0),
                static_cast<ssize_t>(sizeof answer));
      const std::array words{key.last_word(LinkSide::dialler, {ControlMessage::Kind::confirmed, 1}),
                             key.last_word(LinkSide::acceptor, {kind, 1})};
      ASSERT_GT(send(socket->get(), words.data(), sizeof words, MSG_NOSIGNAL), 0);
      expect_refused(rank);
    }
    {
      SocketAddress other{.kind = SocketAddress::Kind::tcp, .name = "127.0.0.1", .port = 0};
      const Socket listener = listen_at(other);
      LonelyConnections rank(other.port);
      rank->request(1);
      ASSERT_TRUE(await_ready(listener.get(), POLLIN, deadline));
      const Socket accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      Hello hello;
      ASSERT_EQ(recv(accepted.get(), &hello, sizeof hello, MSG_WAITALL),
                static_cast<ssize_t>(sizeof hello));
      const ConnectionKey key(rank.key(), hello);
      Answer answer{Answer::Kind::welcome, {}};
      answer.nonce = random_key();
      answer.proof = key.proof_of(answer);
      ASSERT_GT(send(accepted.get(), &answer, sizeof answer, MSG_NOSIGNAL), 0);
      LastWord word;
      ASSERT_EQ(recv(accepted.get(), &word, sizeof word, MSG_WAITALL),
                static_cast<ssize_t>(sizeof word));
      EXPECT_EQ(word.message.kind, ControlMessage::Kind::confirmed);
      word = key.last_word(LinkSide::dialler, {kind, 1});
      ASSERT_GT(send(accepted.get(), &word, sizeof word, MSG_NOSIGNAL), 0);
      expect_refused(rank);
    }
  }
}

// A last word that this rank's peer did not send fails this rank alone.
TEST(HostGreetingsTest, ALastWordWithoutItsTagFailsThisRankAlone) {
  LonelyConnections rank(1);
  const Hello hello = rank.greeting(rank.key(), 1);
  const auto socket =
      connect_to({.kind = SocketAddress::Kind::tcp, .name = "127.0.0.1", .port = rank.port()},
                 std::chrono::steady_clock::now() + kLong);
  ASSERT_TRUE(socket);
  ASSERT_GT(send(socket->get(), &hello, sizeof hello, MSG_NOSIGNAL), 0);
  Answer answer;
  ASSERT_TRUE(await_ready(socket->get(), POLLIN, std::chrono::steady_clock::now() + kLong));
  ASSERT_EQ(recv(socket->get(), &answer, sizeof answer, 0), static_cast<ssize_t>(sizeof answer));
  // Of the wrong side.
  const LastWord word = ConnectionKey(rank.key(), hello)
                            .last_word(LinkSide::acceptor, {ControlMessage::Kind::lost, 1});
  ASSERT_GT(send(socket->get(), &word, sizeof word, MSG_NOSIGNAL), 0);
  const LinkFailure failure = await_failure(rank);
  EXPECT_EQ(failure.message.kind, ControlMessage::Kind::aborted);
  EXPECT_EQ(failure.message.failed_rank, 0);
  EXPECT_THAT(failure.text, ::testing::HasSubstr("a message of rank 1 was changed on its way"));
}

}  // namespace
}  // namespace gantry
