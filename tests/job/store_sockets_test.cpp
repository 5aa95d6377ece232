// What carries a store's messages; hosts whose names and addresses answer late or never; busy
// servers.
#include "core/files/socket.hpp"
#include "job/store/messages.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>

#include "job/store/byte_queue.hpp"
#include "tests/support/signal_storm.hpp"

namespace gantry {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

// What getaddrinfo() below says of the host "several": ports of this machine, in order.
std::vector<int> ports_of_several;
// How often it does not know "late" before it does.
std::atomic<int> tries_before_late{0};

using Lookup = int (*)(const char*, const char*, const addrinfo*, addrinfo**);

int real_lookup(const char* host, const char* service, const addrinfo* hints, addrinfo** list) {
  static const auto real = reinterpret_cast<Lookup>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(host, service, hints, list);
}

int look_up(const char* host, const char* service, const addrinfo* hints, addrinfo** list) {
  const std::string name = host == nullptr ? "" : host;
  if (name == "late") {
    if (tries_before_late-- > 0) return EAI_AGAIN;
    return real_lookup("127.0.0.1", service, hints, list);
  }
  if (name == "never") return EAI_NONAME;
  if (name != "several") return real_lookup(host, service, hints, list);
  addrinfo** end = list;
  for (const int port : ports_of_several) {
    if (real_lookup("127.0.0.1", std::to_string(port).c_str(), hints, end) != 0) return EAI_FAIL;
    end = &(*end)->ai_next;
  }
  return 0;
}

// A port of this machine that lets nobody in and says nothing: its queue is full.
class SilentPort {
 public:
  SilentPort() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.get(), raw, length), 0);
    EXPECT_EQ(listen(listener_.get(), 0), 0);
    EXPECT_EQ(getsockname(listener_.get(), raw, &length), 0);
    port_ = ntohs(address.sin_port);
    for (UniqueFd& client : clients_) {
      client = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      (void)connect(client.get(), raw, length);
    }
  }
  [[nodiscard]] int port() const { return port_; }

 private:
  UniqueFd listener_;
  std::array<UniqueFd, 4> clients_;
  int port_ = 0;
};

const std::string kToken = "0123456789abcdef0123456789abcdef";

int port_of(const StoreServer& server) { return parse_socket_address(server.address()).port; }

TEST(ByteQueueTest, GivesBackWhatWasPutInInItsOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    ByteQueue queue;
    std::string expected;
    for (int i = 0; i < 400; ++i) {
      const std::string bytes(random() % 50, static_cast<char>('a' + i % 26));
      queue.append(bytes);
      expected += bytes;
      const std::size_t count = random() % (queue.size() + 1);
      ASSERT_EQ(queue.waiting(), expected);
      queue.take(count);
      expected.erase(0, count);
      ASSERT_EQ(queue.size(), expected.size());
      ASSERT_EQ(queue.empty(), expected.empty());
    }
    queue.clear();
    ASSERT_TRUE(queue.empty());
  }
}

TEST(SplitterTest, CutsStreamsThatComeInAnyPieces) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    std::string stream;
    std::vector<std::string> bodies;
    for (int i = 0; i < 100; ++i) {
      std::string message = store::Writer(store::Message::set, static_cast<std::uint64_t>(i))
                                .text(std::string(random() % 300, 'x'))
                                .finish();
      bodies.push_back(message.substr(4));
      stream += message;
    }
    store::Splitter splitter;
    std::size_t next = 0;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t piece = std::min<std::size_t>(stream.size() - at, 1 + random() % 900);
      splitter.append(std::string_view(stream).substr(at, piece));
      at += piece;
      while (const auto body = splitter.next(1000)) ASSERT_EQ(*body, bodies.at(next++));
    }
    EXPECT_EQ(next, bodies.size());
    EXPECT_FALSE(splitter.broken());
  }
}

TEST(StoreAddressTest, AHostWhoseNameIsNotKnownYetIsWaitedFor) {
  const StoreServer server(StoreServerOptions{.address = "tcp:127.0.0.1:0", .token = kToken});
  tries_before_late = 3;
  StoreClient client({.address = "tcp:late:" + std::to_string(port_of(server)),
                      .token = kToken,
                      .connect_timeout = 20s});
  client.set("key", "value");
  EXPECT_EQ(client.get("key", 10s), "value");
  EXPECT_LT(tries_before_late, 0);
}

TEST(StoreAddressTest, AServerDoesNotWaitForItsName) {
  tries_before_late = 1;
  try {
    StoreServer(StoreServerOptions{.address = "tcp:late:0", .token = kToken});
    ADD_FAILURE() << "listens";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith("socket: failed to listen at tcp:late:0"));
  }
}

TEST(StoreAddressTest, AHostWithoutAddressIsAnErrorAtOnce) {
  try {
    StoreClient({.address = "tcp:never:1", .connect_timeout = 20s});
    ADD_FAILURE() << "connected";
  } catch (const Error& error) {  // one that was tried until the time was over would say so
    EXPECT_THAT(error.what(), StartsWith("socket: failed to resolve the host of 'tcp:never:1'"));
  }
}

TEST(StoreAddressTest, AnAddressThatAnswersNothingLeavesTimeForTheNext) {
  const StoreServer server(StoreServerOptions{.address = "tcp:127.0.0.1:0", .token = kToken});
  const SilentPort silent;
  ports_of_several = {silent.port(), port_of(server)};
  StoreClient client({.address = "tcp:several:1", .token = kToken, .connect_timeout = 20s});
  client.set("key", "value");
  EXPECT_EQ(client.get("key", 10s), "value");
}

// A port that accepts connections and hangs up, as another process does that has it.
class ForeignPort {
 public:
  ForeignPort() : listener_(listen_at(address_)), thread_([this] { serve(); }) {}
  ~ForeignPort() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  [[nodiscard]] int port() const { return address_.port; }

 private:
  void serve() const {
    for (;;) {
      if (!await_ready(listener_.get(), POLLIN, std::chrono::steady_clock::now() + 60s)) return;
      const UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) return;
      char hello[4096];
      (void)recv(client.get(), hello, sizeof hello, 0);
      const std::string answer = store::Writer(store::Message::ok, 1).finish();
      (void)send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }

  SocketAddress address_ = parse_socket_address("tcp:127.0.0.1:0");
  UniqueFd listener_;
  std::thread thread_;
};

TEST(StoreAddressTest, AForeignServerAtOneAddressLeavesTheOthers) {
  const StoreServer server(StoreServerOptions{.address = "tcp:127.0.0.1:0", .token = kToken});
  const ForeignPort foreign;
  ports_of_several = {foreign.port(), port_of(server)};
  StoreClient client({.address = "tcp:several:1", .token = kToken, .connect_timeout = 20s});
  client.set("key", "value");
  EXPECT_EQ(client.get("key", 10s), "value");
}

// A server at the other addresses alone would leave its clients to the process that has this one.
TEST(StoreAddressTest, AServerNeedsEveryAddressOfItsHost) {
  for (const bool is_first : {true, false}) {
    const ForeignPort foreign;
    SocketAddress free = parse_socket_address("tcp:127.0.0.1:0");
    listen_at(free).reset();
    ports_of_several =
        is_first ? std::vector{foreign.port(), free.port} : std::vector{free.port, foreign.port()};
    EXPECT_THAT(
        [&] { StoreServer(StoreServerOptions{.address = "tcp:several:1", .token = kToken}); },
        ThrowsMessage<Error>(::testing::AllOf(
            StartsWith("socket: failed to listen at tcp:several:1: 127.0.0.1:" +
                       std::to_string(foreign.port()) + ": Address already in use"),
            HasSubstr("processes that looked for this one may have met that one"))));
  }
}

TEST(StoreAddressTest, AServerListensAtEveryAddressOfItsHost) {
  std::vector<int> ports;
  for (int i = 0; i < 2; ++i) {
    SocketAddress free = parse_socket_address("tcp:127.0.0.1:0");
    listen_at(free).reset();
    ports.push_back(free.port);
  }
  ports.push_back(ports.front());  // as /etc/hosts may have it
  ports_of_several = ports;
  const StoreServer server(StoreServerOptions{.address = "tcp:several:1", .token = kToken});
  for (const int port : ports) {
    StoreClient client({.address = "tcp:127.0.0.1:" + std::to_string(port),
                        .token = kToken,
                        .connect_timeout = 20s});
    client.set("key", "value");
  }
}

TEST(StoreAddressTest, EveryInterfaceAreBothFamilies) {
  const StoreServer server(StoreServerOptions{.address = "tcp:*:0", .token = kToken});
  StoreClient client({.address = "tcp:127.0.0.1:" + std::to_string(port_of(server)),
                      .token = kToken,
                      .connect_timeout = 20s});
  client.set("key", "value");
}

TEST(StoreAddressTest, SignalsDoNotEndTheWaitForAnAnswer) {
  const SilentPort silent;
  const SocketAddress address =
      parse_socket_address("tcp:127.0.0.1:" + std::to_string(silent.port()));
  const testing::SignalStorm storm;
  long before = 0;
  do {
    before = testing::SignalStorm::count();
    const auto deadline = std::chrono::steady_clock::now() + 300ms;
    EXPECT_FALSE(connect_to(address, deadline));
    EXPECT_GE(std::chrono::steady_clock::now(), deadline);
  } while (testing::SignalStorm::count() == before);  // the storm was kept from its CPU
}

TEST(StoreAddressTest, LeavesTheSocketFileOfABusyServerAlone) {
  const std::string path = "/tmp/gantry-test-busy-" + std::to_string(getpid());
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strcpy(name.sun_path, path.c_str());
  const auto* raw = reinterpret_cast<const sockaddr*>(&name);
  const UniqueFd busy(socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind(busy.get(), raw, sizeof name), 0);
  ASSERT_EQ(listen(busy.get(), 0), 0);
  std::vector<UniqueFd> waiting;
  do {  // until its queue is full
    waiting.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
  } while (connect(waiting.back().get(), raw, sizeof name) == 0);
  ASSERT_EQ(errno, EAGAIN);
  EXPECT_THAT([&] { StoreServer(StoreServerOptions{.address = "unix:" + path}); },
              ThrowsMessage<Error>(HasSubstr("Address already in use")));
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  unlink(path.c_str());
}

TEST(StoreServerTest, HasRoomForConnectionsOfEveryRank) {
  constexpr std::size_t kRanks = 4096;  // the most that glaunch starts
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  constexpr rlim_t kNeeded = 2 * kRanks + 200;  // both ends are here
  if (before.rlim_max < kNeeded) GTEST_SKIP() << "needs " << kNeeded << " open files";
  const rlimit wide{std::max(before.rlim_cur, kNeeded), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &wide), 0);
  {
    StoreServer server(
        StoreServerOptions{.address = "unix:@gantry-test-room-" + std::to_string(getpid())});
    const SocketAddress address = parse_socket_address(server.address());
    std::vector<UniqueFd> others;
    while (others.size() < kRanks) {
      auto made = connect_to(address, {});
      if (!made) continue;
      const std::string hello = store::Writer(store::Message::hello, 1)
                                    .u32(store::kMagic)
                                    .i64(static_cast<std::int64_t>(others.size()))
                                    .text("")
                                    .finish();
      ASSERT_EQ(send(made->get(), hello.data(), hello.size(), 0),
                static_cast<ssize_t>(hello.size()));
      others.push_back(std::move(*made));
    }
    EXPECT_NO_THROW(StoreClient(server.address(), -1, 20s).set("key", "value"));
    EXPECT_EQ(server.connected_ranks().size(), kRanks);
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace gantry

// In the place of the system's.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                           addrinfo** list) {
  return gantry::look_up(host, service, hints, list);
}
