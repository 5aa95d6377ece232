#include "collectives/host/links/addresses.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "collectives/peers/process.hpp"

namespace gantry {

namespace {

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

}  // namespace

std::string RankAddress::str() const {
  return fmt::format("{} {} {} {}", cookie, machine, port, fmt::join(hosts, " "));
}

RankAddress RankAddress::parse(const std::string& text) {
  std::istringstream in(text);
  RankAddress address;
  in >> address.cookie >> address.machine >> address.port;
  for (std::string host; in >> host;) address.hosts.push_back(host);
  return address;
}

std::vector<std::string> RankAddress::hosts_from(const std::string& other_machine) const {
  std::vector<std::string> result;
  if (machine == other_machine) result = {"127.0.0.1", "::1"};
  result.insert(result.end(), hosts.begin(), hosts.end());
  return result;
}

Socket listen_anywhere(RankAddress& address) {
  address.machine = this_machine();
  address.cookie = random_cookie();
  address.hosts = own_hosts();
  for (const char* host : {"::", "0.0.0.0"}) {
    SocketAddress any{.kind = SocketAddress::Kind::tcp, .name = host, .port = 0};
    try {
      Socket listener = listen_at(any);
      address.port = any.port;
      return listener;
    } catch (const Error&) {
      if (std::string_view(host) == "0.0.0.0") throw;  // A machine without IPv6 is fine.
    }
  }
  return {};
}

}  // namespace gantry
