// Where a rank listens for the other ranks, and how many unauthenticated connections it keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>

#include "collectives/host/links/connections.hpp"
#include "tests/support/descriptor_limit.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string host_of(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  EXPECT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  EXPECT_EQ(getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(),
                        host.size(), nullptr, 0, NI_NUMERICHOST),
            0);
  return host.data();
}

std::vector<std::string> hosts_of(const std::vector<Socket>& listeners) {
  std::vector<std::string> hosts;
  for (const Socket& listener : listeners) hosts.push_back(host_of(listener));
  return hosts;
}

bool connects(const std::string& host, int port) {
  return connect_to({.kind = SocketAddress::Kind::tcp, .name = host, .port = port},
                    std::chrono::steady_clock::now() + std::chrono::seconds(10))
      .has_value();
}

TEST(HostListenersTest, RanksOfOneMachineListenAtItsLoopbackAddress) {
  RankAddress address;
  const LinkDescriptors descriptors = open_descriptors(address, Neighbourhood::one_machine);
  EXPECT_THAT(hosts_of(descriptors.listeners), ElementsAre("127.0.0.1"));
  EXPECT_THAT(address.hosts, ElementsAre("127.0.0.1"));
  EXPECT_THAT(address.hosts_from(address.machine), ElementsAre("127.0.0.1"));
  EXPECT_THAT(address.hosts_from("another machine"), ::testing::IsEmpty());
}

TEST(HostListenersTest, RanksOfOneUserOpenNoPort) {
  RankAddress address;
  const LinkDescriptors descriptors = open_descriptors(address, Neighbourhood::one_user);
  ASSERT_EQ(descriptors.listeners.size(), 1u);
  EXPECT_EQ(address.port, 0);
  ASSERT_EQ(address.hosts.size(), 1u);
  EXPECT_THAT(address.hosts.front(), ::testing::MatchesRegex("@gantry-link-[0-9a-f]{32}"));
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  ASSERT_EQ(
      getsockname(descriptors.listeners.front().get(), reinterpret_cast<sockaddr*>(&name), &length),
      0);
  EXPECT_EQ(name.ss_family, AF_UNIX);
  RankAddress other;
  (void)open_descriptors(other, Neighbourhood::one_user);
  EXPECT_NE(address.hosts, other.hosts);
}

TEST(HostListenersTest, RanksOfOneUserLinkByUnixSockets) {
  constexpr int kRanks = 3;
  auto bootstraps = make_local_bootstraps(kRanks);
  testing::rank_threads(kRanks, [&](int rank) {
    const auto links = make_host_links(*bootstraps[static_cast<std::size_t>(rank)],
                                       {rank, kRanks, std::chrono::seconds(60)});
    EXPECT_EQ(links->name(), "unix");
    // More than the buffers of a connection hold.
    const std::vector<std::byte> mine(3'000'000, static_cast<std::byte>(rank + 1));
    std::vector<std::vector<std::byte>> theirs(kRanks, std::vector<std::byte>(mine.size()));
    std::vector<Outgoing> sends;
    std::vector<Incoming> receives;
    for (int other = 0; other < kRanks; ++other) {
      if (other == rank) continue;
      sends.push_back({other, mine});
      receives.push_back({other, theirs[static_cast<std::size_t>(other)]});
    }
    links->exchange(sends, receives);
    for (const Incoming& message : receives) {
      EXPECT_EQ(message.bytes, mine.size());
      EXPECT_THAT(message.buffer.first(1), ElementsAre(static_cast<std::byte>(message.rank + 1)));
      EXPECT_EQ(message.buffer.back(), message.buffer.front());
    }
    (void)bootstraps[static_cast<std::size_t>(rank)]->all_gather("done");
  });
}

// Another user finds the name in /proc/net/unix.
TEST(HostListenersTest, AnotherUserIsHungUpOnAtOnce) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for another user";
  RankAddress own;
  LinkDescriptors descriptors = open_descriptors(own, Neighbourhood::one_user);
  const std::vector addresses{own.str(), own.str()};
  LinkGroup group{0, 2, std::chrono::seconds(60)};
  group.where = Neighbourhood::one_user;
  Connections rank(group, addresses, std::move(descriptors));
  const SocketAddress place{
      .kind = SocketAddress::Kind::unix_abstract, .name = own.hosts.front().substr(1), .port = 0};
  // Even with the key.
  Hello hello;
  hello.from = 1;
  hello.nonce = random_key();
  hello.proof = ConnectionKey(group_key({}, addresses), hello).proof_of(hello);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr uid_t kOtherUser = 60'002;
    if (setresuid(kOtherUser, kOtherUser, kOtherUser) != 0) _exit(77);
    for (int i = 0; i < 1000; ++i) {
      const auto socket = connect_to(place, {});
      if (!socket) continue;
      (void)send(socket->get(), &hello, sizeof hello, MSG_NOSIGNAL);
      if (!await_ready(socket->get(), POLLIN,
                       std::chrono::steady_clock::now() + std::chrono::seconds(30))) {
        _exit(1);
      }
      char byte = 0;
      if (recv(socket->get(), &byte, 1, 0) > 0) _exit(2);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(rank.why_broken());
  EXPECT_TRUE(rank.take_data().empty());
}

TEST(HostListenersTest, RanksOfSeveralMachinesListenEverywhere) {
  RankAddress address;
  const LinkDescriptors descriptors = open_descriptors(address);
  ASSERT_EQ(descriptors.listeners.size(), 1u);
  EXPECT_EQ(address.hosts_from(address.machine).front(), "127.0.0.1");
  EXPECT_THAT(address.hosts_from("another machine"),
              Each(::testing::Not(::testing::StartsWith("127."))));
  EXPECT_TRUE(connects("127.0.0.1", address.port));
}

// Runs `body` in a child that has a network of its own, with interfaces v0 and v1. The child's code
// is 0 if `body` returns an empty text.
void in_own_network(const std::function<std::string()>& body) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for a network namespace";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0) _exit(77);
    constexpr const char* kCommands =
        "ip link set lo up && ip link add v0 type veth peer name v1 && "
        "ip addr add 10.9.8.1/24 dev v0 && ip addr add 10.9.8.2/24 dev v0 && "
        "ip addr add 10.9.7.1/24 dev v1 && ip link set v0 up && ip link set v1 up";
    if (std::system(kCommands) != 0) _exit(77);
    std::string problem;
    try {
      problem = body();
    } catch (const std::exception& error) {
      problem = error.what();
    }
    std::fputs(problem.c_str(), stderr);
    _exit(problem.empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "the system allows no network namespace";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(HostListenersTest, ANamedInterfaceIsTheOnlyOneThatIsListenedAt) {
  in_own_network([]() -> std::string {
    setenv("GANTRY_HOST_INTERFACE", "v0", 1);
    RankAddress address;
    const LinkDescriptors descriptors = open_descriptors(address);
    if (hosts_of(descriptors.listeners) != std::vector<std::string>{"10.9.8.1", "10.9.8.2"}) {
      return "other listeners than v0's";
    }
    if (address.hosts_from(address.machine) != hosts_of(descriptors.listeners)) {
      return "an address without a listener is published";
    }
    if (!connects("10.9.8.1", address.port)) return "10.9.8.1 refuses";
    if (!connects("10.9.8.2", address.port)) return "10.9.8.2 refuses";
    if (connects("10.9.7.1", address.port)) return "v1 accepts";
    if (connects("127.0.0.1", address.port)) return "the loopback address accepts";
    return {};
  });
}

TEST(HostListenersTest, AnInterfaceThatIsNotThereIsNamed) {
  in_own_network([]() -> std::string {
    setenv("GANTRY_HOST_INTERFACE", "v7", 1);
    RankAddress address;
    try {
      (void)open_descriptors(address);
      return "listens";
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool is_named =
          text.find("a network interface that is up and reaches other machines, but got 'v7'") !=
          std::string::npos;
      return is_named ? "" : text;
    }
  });
}

// Rank 0 of two. The other one never comes.
TEST(HostListenersTest, SilentConnectionsTakeFewDescriptorsAndKeepNoRankOut) {
  constexpr int kMost = 2 * 2 + 64;
  constexpr int kFlood = 10 * kMost;
  RankAddress own;
  LinkDescriptors descriptors = open_descriptors(own);
  RankAddress other = own;
  other.port = 1;
  const std::vector addresses{own.str(), other.str()};
  Connections rank(LinkGroup{0, 2, std::chrono::seconds(60)}, addresses, std::move(descriptors));
  const int before = testing::count_descriptors();
  const SocketAddress place{
      .kind = SocketAddress::Kind::tcp, .name = "127.0.0.1", .port = own.port};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::vector<UniqueFd> outsiders;
  while (outsiders.size() < static_cast<std::size_t>(kFlood)) {
    auto made = connect_to(place, deadline);
    ASSERT_TRUE(made);
    outsiders.push_back(std::move(*made));
    // Both ends are here.
    ASSERT_LE(testing::count_descriptors() - before,
              static_cast<int>(outsiders.size()) + kMost + 1);
  }
  // The oldest are hung up on before they have been silent for long.
  char byte = 0;
  ASSERT_TRUE(await_ready(outsiders.front().get(), POLLIN, deadline));
  EXPECT_LE(recv(outsiders.front().get(), &byte, 1, MSG_DONTWAIT), 0);
  Hello hello;
  hello.from = 1;
  hello.nonce = random_key();
  hello.proof = ConnectionKey(group_key({}, addresses), hello).proof_of(hello);
  const auto friendly = connect_to(place, deadline);
  ASSERT_TRUE(friendly);
  ASSERT_GT(send(friendly->get(), &hello, sizeof hello, MSG_NOSIGNAL), 0);
  ASSERT_TRUE(await_ready(friendly->get(), POLLIN, deadline));
  Answer answer;
  EXPECT_EQ(recv(friendly->get(), &answer, sizeof answer, 0), static_cast<ssize_t>(sizeof answer));
  EXPECT_FALSE(rank.why_broken());
}

}  // namespace
}  // namespace gantry
