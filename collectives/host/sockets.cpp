#include "collectives/host/sockets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "collectives/peers/process.hpp"
#include "core/escaped_text.hpp"

namespace gantry {

namespace {

using Clock = std::chrono::steady_clock;

// Long enough for late ranks, short enough for a fallback to MPI.
constexpr std::chrono::milliseconds kMostTimeout = std::chrono::seconds(30);
constexpr auto kConnectTimeout = std::chrono::seconds(1);
constexpr auto kHelloTimeout = std::chrono::seconds(2);

enum class Purpose : std::int32_t { data, control };
constexpr int kPurposes = 2;

// The first bytes on a connection. The cookie rejects unauthenticated connections.
struct Hello {
  std::array<char, 8> magic{'g', 'a', 'n', 't', 'r', 'y', 'L', '1'};
  std::array<char, 32> cookie{};
  std::int32_t from = 0;
  std::int32_t to = 0;
  Purpose purpose = Purpose::data;
  std::int32_t reserved = 0;
};
constexpr char kWelcome = 'y';

// The addresses of a rank.
struct Place {
  std::string cookie;
  std::string machine;  // boot id and network namespace: equal ones share the loopback interface
  int port = 0;
  std::vector<std::string> hosts;

  std::string str() const {
    return fmt::format("{} {} {} {}", cookie, machine, port, fmt::join(hosts, " "));
  }
};

Place parse_place(const std::string& text) {
  std::istringstream in(text);
  Place place;
  in >> place.cookie >> place.machine >> place.port;
  for (std::string host; in >> host;) place.hosts.push_back(host);
  return place;
}

std::string random_cookie() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Error(fmt::format("host links: no random numbers: {}", std::strerror(errno)));
  }
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string this_machine() {
  struct stat status {};
  const bool known = ::stat("/proc/self/ns/net", &status) == 0;
  return fmt::format("{}:{}", boot_id(), known ? status.st_ino : 0);
}

// Machine-local bridges have the same address on every machine.
bool is_private_bridge(std::string_view interface) {
  return interface.starts_with("docker") || interface.starts_with("virbr") ||
         interface.starts_with("br-") || interface.starts_with("veth") ||
         interface.starts_with("cni");
}

bool is_wanted(const ifaddrs& entry, const std::string& wanted) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return false;
  if ((entry.ifa_flags & IFF_LOOPBACK) != 0) return false;
  const int family = entry.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return false;
  if (family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&address)) return false;
  }
  if (wanted.empty()) return true;
  std::istringstream names(wanted);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == entry.ifa_name) return true;
  }
  return false;
}

// Returns this machine's addresses in the order in which peers should try them.
std::vector<std::string> own_hosts() {
  const std::string wanted = env::get("GANTRY_HOST_INTERFACE").value_or("");
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::vector<std::string> likely, unlikely;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (!is_wanted(*entry, wanted)) continue;
    const bool is_v4 = entry->ifa_addr->sa_family == AF_INET;
    std::array<char, NI_MAXHOST> text{};
    const socklen_t length = is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(entry->ifa_addr, length, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      const bool last = wanted.empty() && (!is_v4 || is_private_bridge(entry->ifa_name));
      (last ? unlikely : likely).emplace_back(text.data());
    }
  }
  freeifaddrs(list);
  likely.insert(likely.end(), unlikely.begin(), unlikely.end());
  return likely;
}

SocketAddress any_address(const char* host) {
  return {.kind = SocketAddress::Kind::tcp, .name = host, .port = 0};
}

Socket make_wake() {
  Socket wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) throw Error(fmt::format("host links: no eventfd: {}", std::strerror(errno)));
  return wake;
}

Socket listen_anywhere(int& port) {
  for (const char* host : {"::", "0.0.0.0"}) {
    SocketAddress address = any_address(host);
    try {
      Socket listener = listen_at(address);
      port = address.port;
      return listener;
    } catch (const Error&) {
      if (std::string_view(host) == "0.0.0.0") throw;  // A machine without IPv6 is fine.
    }
  }
  return {};
}

// Returns false if not all `bytes` are transferred before the deadline.
bool transfer_all(int fd, void* data, std::size_t bytes, bool sends, Clock::time_point deadline) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t moved = sends ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);
    if (moved > 0) {
      at += moved;
      bytes -= static_cast<std::size_t>(moved);
      continue;
    }
    if (moved == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    if (!await_ready(fd, sends ? POLLOUT : POLLIN, deadline)) return false;
  }
  return true;
}

void prepare(const Socket& socket, Purpose purpose) {
  const int fd = socket.get();
  send_small_messages_at_once(fd, any_address(""));
  if (purpose == Purpose::data) return;
  // An unreachable machine is detected after four seconds.
  const auto set = [fd](int option, int value) {
    setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_KEEPIDLE, 1);
  set(TCP_KEEPINTVL, 1);
  set(TCP_KEEPCNT, 3);
  set(TCP_USER_TIMEOUT, 4000);
}

// Connects one rank to all others.
class Mesh {
 public:
  Mesh(const LinkGroup& group, std::vector<Place> places, Socket listener)
      : group_(group),
        places_(std::move(places)),
        listener_(std::move(listener)),
        deadline_(Clock::now() + std::min(group.timeout, kMostTimeout)),
        peers_(static_cast<std::size_t>(group.size)) {}

  // Ranks connect to lower ranks and then accept higher ranks, which prevents deadlock.
  std::vector<PeerSockets> connect() {
    for (int to = 0; to < group_.rank; ++to) {
      slot(to, Purpose::data) = reach(to, Purpose::data);
      slot(to, Purpose::control) = reach(to, Purpose::control);
    }
    int missing = kPurposes * (group_.size - 1 - group_.rank);
    while (missing > 0) {
      if (!await_ready(listener_.get(), POLLIN, deadline_)) throw Error(missing_text());
      missing -= admit() ? 1 : 0;
    }
    return std::move(peers_);
  }

 private:
  Socket& slot(int rank, Purpose purpose) {
    PeerSockets& peer = peers_[static_cast<std::size_t>(rank)];
    return purpose == Purpose::data ? peer.data : peer.control;
  }

  Hello hello(int to, Purpose purpose) const {
    Hello result;
    std::memcpy(result.cookie.data(), places_[0].cookie.data(), result.cookie.size());
    result.from = group_.rank;
    result.to = to;
    result.purpose = purpose;
    return result;
  }

  Socket reach(int to, Purpose purpose) {
    const Place& place = places_[static_cast<std::size_t>(to)];
    std::vector<std::string> hosts;
    if (place.machine == places_[static_cast<std::size_t>(group_.rank)].machine) {
      hosts = {"127.0.0.1", "::1"};
    }
    hosts.insert(hosts.end(), place.hosts.begin(), place.hosts.end());
    while (!hosts.empty() && Clock::now() < deadline_) {
      for (const std::string& host : hosts) {
        if (auto socket = try_host(host, place.port, hello(to, purpose))) {
          prepare(*socket, purpose);
          return std::move(*socket);
        }
      }
      poll(nullptr, 0, 10);  // No address answered: limit the retry rate.
    }
    throw Error(fmt::format(
        "no way to rank {} at port {} of {}{}", to, place.port,
        hosts.empty() ? "no address" : fmt::format("{}", fmt::join(hosts, ", ")), trouble_text()));
  }

  std::optional<Socket> try_host(const std::string& host, int port, Hello hello) {
    SocketAddress address = any_address(host.c_str());
    address.port = port;
    std::optional<Socket> socket;
    try {
      socket = connect_to(address, std::min(deadline_, Clock::now() + kConnectTimeout));
    } catch (const Error& error) {
      trouble_ = error.what();
      return std::nullopt;
    }
    // A rank that is still connecting accepts late: only the group's deadline applies.
    char answer = 0;
    if (!socket || !transfer_all(socket->get(), &hello, sizeof hello, true, deadline_) ||
        !transfer_all(socket->get(), &answer, 1, false, deadline_) || answer != kWelcome) {
      return std::nullopt;
    }
    return socket;
  }

  // Accepts one connection; false if it is unauthenticated.
  bool admit() {
    Socket socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // The connection stays in the queue while this process has no descriptor for it.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        trouble_ = fmt::format("cannot accept a connection: {}", std::strerror(errno));
        poll(nullptr, 0, 10);
      }
      return false;
    }
    Hello got;
    if (!transfer_all(socket.get(), &got, sizeof got, false,
                      std::min(deadline_, Clock::now() + kHelloTimeout))) {
      return false;
    }
    const Hello wanted = hello(group_.rank, got.purpose);
    if (got.magic != wanted.magic || got.cookie != wanted.cookie || got.to != group_.rank ||
        got.from <= group_.rank || got.from >= group_.size ||
        (got.purpose != Purpose::data && got.purpose != Purpose::control)) {
      return false;
    }
    char welcome = kWelcome;
    if (!transfer_all(socket.get(), &welcome, 1, true, deadline_)) return false;
    prepare(socket, got.purpose);
    Socket& place = slot(got.from, got.purpose);
    const bool is_new = !place;
    place = std::move(socket);  // A retry: the peer closed the first one before it was accepted.
    return is_new;
  }

  std::string missing_text() const {
    std::vector<int> missing;
    for (int rank = group_.rank + 1; rank < group_.size; ++rank) {
      const PeerSockets& peer = peers_[static_cast<std::size_t>(rank)];
      if (!peer.data || !peer.control) missing.push_back(rank);
    }
    return fmt::format("rank(s) {} did not connect{}", fmt::join(missing, ", "), trouble_text());
  }
  std::string trouble_text() const {
    return trouble_.empty() ? std::string() : fmt::format(" ({})", trouble_);
  }

  const LinkGroup& group_;
  std::vector<Place> places_;
  Socket listener_;
  Clock::time_point deadline_;
  std::vector<PeerSockets> peers_;
  std::string trouble_;  // an error of this process, not of its peers
};

}  // namespace

LinkSockets connect_ranks(Bootstrap& bootstrap, const LinkGroup& group) {
  Place mine{.cookie = "none", .machine = this_machine(), .port = 0, .hosts = {}};
  std::string failure;
  LinkSockets result;
  Socket listener;
  try {
    mine.cookie = random_cookie();
    result.wake = make_wake();
    mine.hosts = own_hosts();
    listener = listen_anywhere(mine.port);
  } catch (const Error& error) {
    failure = error.what();
  }
  std::vector<Place> places;
  for (const std::string& text : bootstrap.all_gather(mine.str())) {
    places.push_back(parse_place(text));
  }
  // No rank tries to connect to a failed rank.
  const bool all_listen =
      std::all_of(places.begin(), places.end(), [](const Place& place) { return place.port != 0; });
  if (all_listen) {
    try {
      result.peers = Mesh(group, std::move(places), std::move(listener)).connect();
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  std::string all;
  const std::vector<std::string> failures = bootstrap.all_gather(failure);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    all += fmt::format(" rank {}: {};", rank,
                       escape_control_characters(failures[rank], LineEnds::keep));
  }
  if (!all.empty()) {
    all.back() = '.';
    throw Error(
        fmt::format("Failed connecting {} ranks by TCP:{} GANTRY_HOST_INTERFACE names the "
                    "network interfaces to use",
                    group.size, all));
  }
  return result;
}

}  // namespace gantry
