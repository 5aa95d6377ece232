#include "collectives/host/links/addresses.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <string_view>

#include <gantry/core/error.hpp>

#include "core/authentication/keys.hpp"
#include "core/env/settings.hpp"
#include "core/processes/process_stamp.hpp"

namespace gantry {

namespace {

std::string random_cookie() {
  std::array<std::byte, 16> bytes{};
  fill_with_random_bytes(bytes);
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
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

// Returns this machine's addresses in the order in which peers should try them. `wanted` names
// interfaces; empty: all.
std::vector<std::string> own_hosts(const std::string& wanted) {
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

bool is_loopback(std::string_view host) { return host.starts_with("127.") || host == "::1"; }

Socket listen_at_host(std::string_view host, int& port) {
  SocketAddress address{.kind = SocketAddress::Kind::tcp, .name = std::string(host), .port = port};
  Socket listener = listen_at(address);
  port = address.port;
  return listener;
}

// Listens at the first of `hosts` that this machine has, and returns it.
std::string_view listen_at_first(std::initializer_list<std::string_view> hosts, Socket& listener,
                                 int& port) {
  for (const std::string_view host : hosts) {
    try {
      listener = listen_at_host(host, port);
      return host;
    } catch (const Error&) {
      if (host == hosts.end()[-1]) throw;
    }
  }
  return {};
}

// Listens at one port of all `hosts`.
std::vector<Socket> listen_at_hosts(const std::vector<std::string>& hosts, int& port) {
  // The port that the system picks for the first host may be in use at another one.
  constexpr int kTries = 16;
  for (int tries = 1;; ++tries) {
    std::vector<Socket> listeners;
    port = 0;
    try {
      for (const std::string& host : hosts) listeners.push_back(listen_at_host(host, port));
      return listeners;
    } catch (const Error&) {
      if (tries == kTries) throw;
    }
  }
}

}  // namespace

std::string this_machine() {
  struct stat status {};
  const bool known = ::stat("/proc/self/ns/net", &status) == 0;
  return fmt::format("{}:{}", boot_id(), known ? status.st_ino : 0);
}

std::string this_machine_and_user() {
  struct stat status {};
  const bool known = ::stat("/proc/self/ns/user", &status) == 0;
  return fmt::format("{}:{}:{}", this_machine(), known ? status.st_ino : 0, geteuid());
}

bool is_unix_socket(std::string_view host) { return host.starts_with('@'); }

std::string RankAddress::str() const {
  return fmt::format("{} {} {} {} {}", cookie, machine, port, encrypts ? 1 : 0,
                     fmt::join(hosts, " "));
}

RankAddress RankAddress::parse(const std::string& text) {
  std::istringstream in(text);
  RankAddress address;
  in >> address.cookie >> address.machine >> address.port >> address.encrypts;
  for (std::string host; in >> host;) address.hosts.push_back(host);
  return address;
}

std::vector<std::string> RankAddress::hosts_from(const std::string& other_machine) const {
  std::vector<std::string> result;
  std::copy_if(hosts.begin(), hosts.end(), std::back_inserter(result),
               [&](const auto& host) { return machine == other_machine || !is_loopback(host); });
  return result;
}

std::vector<Socket> listen_for_ranks(RankAddress& address, Neighbourhood where) {
  address.machine = this_machine();
  address.cookie = random_cookie();
  address.port = 0;
  address.encrypts = env::kHostCrypt.get();
  const std::string interfaces = env::kHostInterface.text();
  std::vector<Socket> listeners;
  if (where == Neighbourhood::one_user) {
    SocketAddress local{.kind = SocketAddress::Kind::unix_abstract,
                        .name = "gantry-link-" + random_cookie(),
                        .port = 0};
    listeners.push_back(listen_at(local));
    address.hosts = {"@" + local.name};
  } else if (where == Neighbourhood::one_machine) {
    const auto host = listen_at_first({"127.0.0.1", "::1"}, listeners.emplace_back(), address.port);
    address.hosts = {std::string(host)};
  } else if (!interfaces.empty()) {
    address.hosts = own_hosts(interfaces);
    if (address.hosts.empty()) {
      throw Error(fmt::format(
          "GANTRY_HOST_INTERFACE: expected a network interface that is up and reaches other "
          "machines, but got '{}'",
          interfaces));
    }
    listeners = listen_at_hosts(address.hosts, address.port);
  } else {
    // A machine without IPv6 is fine.
    const auto any = listen_at_first({"::", "0.0.0.0"}, listeners.emplace_back(), address.port);
    address.hosts = any == "::" ? std::vector<std::string>{"127.0.0.1", "::1"}
                                : std::vector<std::string>{"127.0.0.1"};
    const std::vector<std::string> others = own_hosts({});
    address.hosts.insert(address.hosts.end(), others.begin(), others.end());
  }
  return listeners;
}

}  // namespace gantry
