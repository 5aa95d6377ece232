#include <gantry/extend/store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <future>
#include <random>
#include <thread>

#include <gantry/core/error.hpp>

#include "core/files/socket.hpp"
#include "job/store/messages.hpp"

namespace gantry {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr milliseconds kLong{20'000};
const std::string kToken = "0123456789abcdef0123456789abcdef";

std::string unique_name(const char* what) {
  static std::atomic<int> counter{0};
  return "gantry-test-" + std::to_string(getpid()) + "-" + what + std::to_string(counter++);
}

template <class E, class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

class StoreTest : public testing::TestWithParam<const char*> {
 protected:
  StoreTest() : server_(StoreServerOptions{.address = address(), .token = kToken}) {}

  static std::string address() {
    const std::string kind = GetParam();
    if (kind == "abstract") return "unix:@" + unique_name("store");
    if (kind == "path") return "unix:/tmp/" + unique_name("store");
    return "tcp:127.0.0.1:0";
  }
  std::unique_ptr<StoreClient> connect(int rank) {
    return std::make_unique<StoreClient>(
        StoreClientOptions{.address = server_.address(), .rank = rank, .token = kToken});
  }

  StoreServer server_;
};

TEST_P(StoreTest, KeepsWhatWasSet) {
  const auto a = connect(0);
  const auto b = connect(1);
  const std::string binary("\0\xff\n\0", 4);
  a->set("key", binary);
  EXPECT_EQ(b->get("key", kLong), binary);
  b->set("key", "");
  EXPECT_EQ(a->get("key", kLong), "");
  EXPECT_EQ(a->try_get("other"), std::nullopt);
  EXPECT_EQ(a->try_get("key"), "");
  EXPECT_TRUE(a->erase("key"));
  EXPECT_FALSE(a->erase("key"));
  EXPECT_EQ(b->try_get("key"), std::nullopt);
  const std::string large(kStoreMaxValueBytes, 'x');
  a->set("large", large);
  EXPECT_EQ(b->get("large", kLong), large);
}

TEST_P(StoreTest, GetWaitsForTheWriterWithoutBlockingOtherCalls) {
  const auto client = connect(0);
  auto value = std::async(std::launch::async, [&] { return client->get("late", kLong); });
  // The same connection serves other calls while one waits.
  client->set("early", "1");
  EXPECT_EQ(client->get("early", kLong), "1");
  const auto other = connect(1);
  other->set("late", "now");
  EXPECT_EQ(value.get(), "now");
}

TEST_P(StoreTest, AddSumsOverAllClients) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const auto client = connect(rank);
      for (int i = 0; i < 50; ++i) client->add("sum", rank + 1);
    });
  }
  for (auto& thread : threads) thread.join();
  const auto client = connect(0);
  EXPECT_EQ(client->add("sum", -1), 50 * (1 + 2 + 3 + 4) - 1);
  EXPECT_EQ(client->get("sum", kLong), "499");
  client->set("text", "abc");
  EXPECT_EQ(error_text<InvalidArgument>([&] { client->add("text", 1); }),
            "Store::add: expected a number under key 'text', but the value is not a whole number");
  client->set("most", "9223372036854775807");
  EXPECT_THAT(error_text<InvalidArgument>([&] { client->add("most", 1); }),
              HasSubstr("the sum overflows"));
}

TEST_P(StoreTest, CompareAndSetHasOneWinner) {
  std::atomic<int> winners{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const auto client = connect(rank);
      const std::string mine = std::to_string(rank);
      if (client->compare_and_set("leader", "", mine) == mine) ++winners;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  const auto client = connect(0);
  const std::string winner = client->get("leader", kLong);
  EXPECT_EQ(client->compare_and_set("leader", "nobody", "late"), winner);
  EXPECT_EQ(client->get("leader", kLong), winner);
  EXPECT_EQ(client->compare_and_set("leader", winner, "next"), "next");
}

TEST_P(StoreTest, WaitAndBarrierLetEverybodyThroughTogether) {
  constexpr int kRanks = 5;
  std::atomic<int> arrived{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto client = connect(rank);
      client->set("here/" + std::to_string(rank), "yes");
      std::vector<std::string> keys;
      for (int other = 0; other < kRanks; ++other) keys.push_back("here/" + std::to_string(other));
      client->wait(keys, kLong);
      ++arrived;
      client->barrier("end", kRanks, kLong);
      EXPECT_EQ(arrived, kRanks);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_P(StoreTest, TimeoutsNameTheKey) {
  const auto client = connect(3);
  EXPECT_EQ(error_text<TimeoutError>([&] { (void)client->get("nobody", milliseconds(20)); }),
            "Store::get: expected key 'nobody' within 20 ms, but got no answer (rank 3, store at " +
                server_.address() + ")");
  EXPECT_EQ(error_text<TimeoutError>([&] { client->barrier("b", 2, milliseconds(20)); }),
            "Store::barrier: expected 2 callers at barrier 'b' within 20 ms, but got 1");
  // A wait that was given up is forgotten: the late value goes to whoever asks next.
  client->set("nobody", "late");
  EXPECT_EQ(client->get("nobody", kLong), "late");
  for (const int count : {0, -1}) {
    EXPECT_EQ(error_text<InvalidArgument>([&] { client->barrier("none", count, kLong); }),
              "Store::barrier: expected at least 1 caller at barrier 'none', but got " +
                  std::to_string(count));
  }
  client->barrier("none", 1, kLong);  // nobody was counted
}

TEST_P(StoreTest, NamesARankThatLeftWithoutDeregistering) {
  const auto survivor = connect(0);
  const auto victim = connect(3);
  survivor->set("there", "value");
  auto waiting = std::async(std::launch::async, [&] { return survivor->get("never", kLong); });
  victim->abandon();
  try {
    waiting.get();
    FAIL() << "get returned although the writer is gone";
  } catch (const PeerLostError& error) {
    EXPECT_EQ(error.rank(), 3);
    EXPECT_STREQ(error.what(), "Store::get: expected key 'never', but rank 3 left the job");
  }
  EXPECT_EQ(survivor->lost_rank(), 3);
  EXPECT_THAT(server_.lost_ranks(), ElementsAre(3));
  // What is there stays readable; what is not fails at once.
  EXPECT_EQ(survivor->get("there", kLong), "value");
  EXPECT_THROW((void)survivor->get("never", kLong), PeerLostError);
  const auto late = connect(5);
  EXPECT_THROW((void)late->get("never", kLong), PeerLostError);
}

TEST_P(StoreTest, AGoodbyeIsNoLoss) {
  const auto survivor = connect(0);
  for (int rank = 1; rank < 20; ++rank) connect(rank)->set("left", "clean");
  EXPECT_EQ(survivor->get("left", kLong), "clean");
  EXPECT_THROW((void)survivor->get("never", milliseconds(20)), TimeoutError);
  EXPECT_TRUE(server_.lost_ranks().empty());
  connect(-1)->abandon();  // an observer's end means nothing
  EXPECT_THROW((void)survivor->get("never", milliseconds(20)), TimeoutError);
}

TEST_P(StoreTest, TheServersOwnerCanDeclareALoss) {
  const auto client = connect(0);
  server_.mark_lost(7);
  try {
    (void)client->get("never", kLong);
    FAIL();
  } catch (const PeerLostError& error) {
    EXPECT_EQ(error.rank(), 7);
  }
}

TEST_P(StoreTest, LossesAreToldInTheirOrder) {
  const auto early = connect(0);
  for (const int rank : {7, 3, 7, 5, 3}) server_.mark_lost(rank);  // each is told once
  const auto late = connect(1);
  for (const auto* client : {early.get(), late.get()}) {
    while (client->lost_ranks().size() < 3) std::this_thread::yield();
    EXPECT_THAT(client->lost_ranks(), ElementsAre(7, 3, 5));
    EXPECT_EQ(client->lost_rank(), 7);
  }
  EXPECT_THAT(server_.lost_ranks(), ElementsAre(7, 3, 5));
}

TEST_P(StoreTest, TheEndOfAProcessIsALossUnlessItDeregistered) {
  const auto client = connect(0);
  connect(1)->set("1", "");
  server_.mark_ended(1);
  server_.mark_ended(2);
  while (client->lost_rank() < 0) std::this_thread::yield();
  EXPECT_THAT(server_.lost_ranks(), ElementsAre(2));
}

TEST_P(StoreTest, RefusesBadKeysAndValues) {
  const auto client = connect(0);
  EXPECT_EQ(error_text<InvalidArgument>([&] { client->set("", "x"); }),
            "Store::set: expected a key of 1 to 1024 bytes, but got 0");
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)client->get(std::string(1025, 'k'), kLong); }),
            "Store::get: expected a key of 1 to 1024 bytes, but got 1025");
  EXPECT_EQ(error_text<InvalidArgument>(
                [&] { client->set("k", std::string(kStoreMaxValueBytes + 1, 'v')); }),
            "Store::set: expected a value of at most 16777216 bytes, but got 16777217");
  client->set(std::string(1024, 'k'), "fits");
  EXPECT_EQ(client->get(std::string(1024, 'k'), kLong), "fits");
}

TEST_P(StoreTest, AChildOfAForkTakesNothingFromItsParent) {
  auto client = connect(0);
  auto server =
      std::make_unique<StoreServer>(StoreServerOptions{.address = address(), .token = kToken});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string text = error_text<ForkError>([&] { client->set("key", "child's"); });
    client.reset();
    server.reset();
    _exit(text.find("got a child of its fork") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  client->set("key", "parent's");
  EXPECT_EQ(client->get("key", kLong), "parent's");
  EXPECT_THAT(server_.connected_ranks(), ElementsAre(0));
  StoreClient({.address = server->address(), .rank = 1, .token = kToken}).set("still", "there");
}

INSTANTIATE_TEST_SUITE_P(Transports, StoreTest, testing::Values("abstract", "path", "tcp"));

TEST(StoreClientTest, WaitsForAServerThatComesLater) {
  const std::string address = "unix:@" + unique_name("later");
  auto value = std::async(std::launch::async, [&] {
    StoreClient client(address, 0);
    return client.get("key", kLong);
  });
  EXPECT_THROW(StoreClient(address, 1, milliseconds(10)), TimeoutError);
  StoreServer server(StoreServerOptions{.address = address});
  StoreClient(address, 1).set("key", "value");
  EXPECT_EQ(value.get(), "value");
}

TEST(StoreClientTest, NoticesThatTheServerIsGone) {
  auto server =
      std::make_unique<StoreServer>(StoreServerOptions{.address = "unix:@" + unique_name("gone")});
  StoreClient client(server->address(), 0);
  auto waiting = std::async(std::launch::async, [&] { return client.get("never", kLong); });
  client.set("sent", "yes");
  server.reset();
  try {
    waiting.get();
    FAIL();
  } catch (const PeerLostError& error) {
    EXPECT_EQ(error.rank(), -1);
    EXPECT_THAT(error.what(), HasSubstr("is gone: the process that served it has ended"));
  }
  EXPECT_THROW(client.set("key", "value"), PeerLostError);
  // The thread that receives may hear of it later than a call.
  while (client.connected()) std::this_thread::yield();
}

TEST(StoreClientTest, TellsTheServersEndFromADeadline) {
  const SocketAddress address = parse_socket_address("unix:@" + unique_name("deaf"));
  SocketAddress place = address;
  const UniqueFd listener = listen_at(place);
  auto deaf = std::async(std::launch::async, [&] {
    pollfd entry{listener.get(), POLLIN, 0};
    poll(&entry, 1, 20'000);
    UniqueFd fd(accept(listener.get(), nullptr, nullptr));
    char hello[4096];
    EXPECT_GT(recv(fd.get(), hello, sizeof hello, 0), 0);
    const std::string ok = store::Writer(store::Message::ok, 1).finish();
    // What is sent here fails at once, as it does behind the end of a server, and unlike there
    // nothing else tells the client.
    shutdown(fd.get(), SHUT_RD);
    send(fd.get(), ok.data(), ok.size(), MSG_NOSIGNAL);
    return fd;
  });
  StoreClient client(address.str(), 0);
  EXPECT_THAT(error_text<PeerLostError>([&] { client.set("key", "value"); }),
              HasSubstr("is gone: the process that served it has ended"));
  deaf.wait();
}

// A port that nobody listens at, nor at the one beside it.
SocketAddress pair_of_free_ports() {
  for (int tries = 0; tries < 100; ++tries) {
    SocketAddress address = parse_socket_address("tcp:127.0.0.1:0");
    static_cast<void>(listen_at(address));  // picks a port, and leaves it
    SocketAddress other = address;
    other.port ^= 1;
    try {
      static_cast<void>(listen_at(other));
      return address;
    } catch (const Error&) {  // taken
    }
  }
  throw std::runtime_error("no two free ports side by side");
}

bool is_connected_to_itself(const UniqueFd& fd) {
  sockaddr_in here{};
  sockaddr_in there{};
  socklen_t length = sizeof here;
  EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&here), &length), 0);
  EXPECT_EQ(getpeername(fd.get(), reinterpret_cast<sockaddr*>(&there), &length), 0);
  return std::memcmp(&here, &there, sizeof here) == 0;
}

TEST(StoreClientTest, IsNotItsOwnServer) {
  SocketAddress address = pair_of_free_ports();
  // Linux gives listeners ports of one parity and connections ports of the other.
  for (int parity = 0; parity < 2; ++parity) {
    address.port ^= parity;
    // Among many attempts is one from the very port that it goes to, and TCP connects that one.
    for (int i = 0; i < 35'000; ++i) {
      const auto fd = connect_to(address, {});
      // Another process may listen there by now.
      ASSERT_FALSE(fd && is_connected_to_itself(*fd)) << "in attempt " << i;
    }
  }
}

TEST(StoreServerTest, RejectsMalformedAddresses) {
  for (const char* bad : {"", "unix:", "unix:@", "unix:name", "tcp:", "tcp:host", "tcp:host:",
                          "tcp:host:x", "tcp:host:65536", "tcp::1", "tcp:::1:80", "udp:h:1"}) {
    EXPECT_THROW(StoreServer(StoreServerOptions{.address = bad}), InvalidArgument) << bad;
  }
  EXPECT_THAT(error_text<InvalidArgument>([] { StoreClient("nowhere", 0); }),
              HasSubstr("expected unix:@name, unix:/path or tcp:host:port, but got 'nowhere'"));
  EXPECT_THROW(StoreServer(StoreServerOptions{.address = "unix:@" + std::string(200, 'x')}),
               InvalidArgument);
}

TEST(StoreServerTest, ReplacesADeadServersSocketFileButNotALiveOnes) {
  const std::string address = "unix:/tmp/" + unique_name("stale");
  {
    // What a killed server leaves: a bound socket file without a listener.
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strcpy(name.sun_path, address.c_str() + 5);
    ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    close(fd);
  }
  StoreServer server(StoreServerOptions{.address = address});
  StoreClient(address, 0).set("key", "value");
  EXPECT_THROW(StoreServer(StoreServerOptions{.address = address}), Error);
  EXPECT_EQ(StoreClient(address, 0).get("key", kLong), "value");
}

TEST(StoreServerTest, LeavesFilesAloneThatAreNoSockets) {
  const std::string path = "/tmp/" + unique_name("file");
  std::ofstream(path) << "precious";
  EXPECT_THAT(
      error_text<Error>([&] { StoreServer(StoreServerOptions{.address = "unix:" + path}); }),
      HasSubstr("Address already in use"));
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "precious");
  unlink(path.c_str());
}

TEST(StoreServerTest, LetsClientsInAgainOnceThereAreDescriptors) {
  StoreServer server(StoreServerOptions{.address = "unix:@" + unique_name("descriptors")});
  StoreClient early(server.address(), 0);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  {
    // Enough for one end of a connection.
    const UniqueFd next(dup(STDERR_FILENO));
    const rlimit tight{static_cast<rlim_t>(next.get() + 1), before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  }
  const auto refused = connect_to(parse_socket_address(server.address()), {});
  // The server looks around after some messages of one client, so it has seen the connection.
  for (int i = 0; i < 50; ++i) early.set("key", "value");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(refused);
  EXPECT_EQ(StoreClient(server.address(), 1, kLong).get("key", kLong), "value");
}

class HostileClient {
 public:
  explicit HostileClient(const std::string& address) : address_(parse_socket_address(address)) {
    fd_ = std::move(*connect_to(address_, std::chrono::steady_clock::now()));
  }
  void send(std::string_view bytes) { ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // Waits until the server has hung up.
  void expect_disconnect() {
    char chunk[4096];
    pollfd entry{fd_.get(), POLLIN, 0};
    for (;;) {
      ASSERT_GT(poll(&entry, 1, 20'000), 0) << "the server keeps the connection";
      if (recv(fd_.get(), chunk, sizeof chunk, 0) <= 0) return;
    }
  }

 private:
  SocketAddress address_;
  UniqueFd fd_;
};

TEST(StoreServerTest, SurvivesHostileClients) {
  StoreServer server(StoreServerOptions{.address = "unix:@" + unique_name("hostile")});
  StoreClient good(server.address(), 0);
  using store::Message;
  using store::Writer;
  const std::string hello = Writer(Message::hello, 1).u32(store::kMagic).i64(-1).text("").finish();
  const std::string huge("\xff\xff\xff\x7f", 4);
  const std::string empty(4, '\0');
  const std::vector<std::string> attacks{
      huge,
      empty,
      "GET / HTTP/1.1\r\n\r\n",
      Writer(Message::set, 1).text("key").text("without hello").finish(),
      Writer(Message::hello, 1).u32(7).i64(0).text("").finish(),
      Writer(Message::hello, 1).u32(store::kMagic).i64(-2).text("").finish(),
      Writer(Message::hello, 1).u32(store::kMagic).i64(std::int64_t{1} << 40).text("").finish(),
      hello + hello,
      hello + huge,
      hello + Writer(Message::set, 2).u32(0xffffffff).finish(),
      hello + Writer(Message::set, 2).text("").text("empty key").finish(),
      hello + Writer(Message::set, 2).text("k").text("v").text("left over").finish(),
      hello + Writer(Message::wait, 2).u32(0xffffffff).text("k").finish(),
      hello + Writer(static_cast<Message>(200), 2).finish(),
      hello + Writer(Message::ok, 2).finish(),
  };
  for (const std::string& attack : attacks) {
    HostileClient client(server.address());
    client.send(attack);
    client.expect_disconnect();
  }
  {
    HostileClient many_waits(server.address());
    std::string messages = hello;
    for (std::uint64_t id = 2; id < 1030; ++id) {
      messages += Writer(Message::get, id).text("never").finish();
    }
    many_waits.send(messages);
    many_waits.expect_disconnect();
  }
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    HostileClient client(server.address());
    std::string noise = i % 2 ? hello : "";
    for (int n = 0; n < 200; ++n) noise.push_back(static_cast<char>(random()));
    client.send(noise);
  }
  good.set("key", "still here");
  EXPECT_EQ(good.get("key", kLong), "still here");
  EXPECT_TRUE(server.lost_ranks().empty());
  EXPECT_THAT(server.connected_ranks(), ElementsAre(0));
}

}  // namespace
}  // namespace gantry
