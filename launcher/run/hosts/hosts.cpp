#include "launcher/run/hosts/hosts.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <set>
#include <sstream>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>
#include <gantry/extend/unique_fd.hpp>

#include "core/env/settings.hpp"
#include "core/files/regular_file.hpp"
#include "launcher/run/options/placement_options.hpp"

namespace gantry::launcher {
namespace {

constexpr std::size_t kMaxHostfileBytes = 1 << 20;
constexpr std::string_view kLoopback = "127.0.0.1";

// Letters, digits, '-', '.', '_': what host names are made of, and no option of a program.
bool is_host_name(std::string_view name) {
  return !name.empty() && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
         });
}

// "name" or "name:4".
Host parse_host(std::string_view text, std::string_view what) {
  const std::size_t colon = text.find(':');
  Host host{std::string(text.substr(0, colon)), std::nullopt};
  if (!is_host_name(host.name)) {
    throw InvalidArgument(
        fmt::format("{}: expected hosts such as node1:4,node2:4, but got '{}'", what, text));
  }
  if (colon != std::string_view::npos) {
    host.ranks = static_cast<int>(env::parse_int(text.substr(colon + 1), what, 1, kMaxRanks));
  }
  return host;
}

void check_hosts(const std::vector<Host>& hosts, std::string_view what) {
  std::set<std::string_view> names;
  const bool counted = !hosts.empty() && hosts.front().ranks.has_value();
  for (const Host& host : hosts) {
    if (!names.insert(host.name).second) {
      throw InvalidArgument(
          fmt::format("{}: expected every host once, but got {} again", what, host.name));
    }
    if (host.ranks.has_value() != counted) {
      throw InvalidArgument(fmt::format(
          "{}: expected a number of ranks for every host or for none, but got {} for {}", what,
          host.ranks ? "one" : "none", host.name));
    }
  }
}

// The numbers of "003-005,9", with their leading zeros; none if it is malformed.
std::vector<std::string> expand_ranges(std::string_view text) {
  std::vector<std::string> numbers;
  do {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, comma);
    const std::size_t dash = std::min(range.find('-'), range.size());
    const std::string_view first = range.substr(0, dash);
    const std::string_view last = dash == range.size() ? first : range.substr(dash + 1);
    int begin = 0;
    int end = -1;
    std::from_chars(first.data(), first.data() + first.size(), begin);
    std::from_chars(last.data(), last.data() + last.size(), end);
    if (first.empty() || end < begin || end - begin >= kMaxRanks) return {};
    for (int number = begin; number <= end; ++number) {
      numbers.push_back(fmt::format("{:0{}}", number, first.size()));
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  } while (!text.empty());
  return numbers;
}

std::string numeric(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  const int status =
      getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return status == 0 ? text.data() : "";
}

// The address that packets to `host` leave from; empty if its name is unknown here.
std::string source_address(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &wanted, &found) != 0) return {};
  std::string address;
  // A datagram socket chooses its address at connect() and sends nothing.
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  socklen_t length = sizeof own;
  auto* const raw = reinterpret_cast<sockaddr*>(&own);
  if (fd.get() >= 0 && connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0 &&
      getsockname(fd.get(), raw, &length) == 0) {
    address = numeric(raw, length);
  }
  freeaddrinfo(found);
  return address;
}

// The first address of an interface that is up; of one of GANTRY_HOST_INTERFACE if that is set.
std::string interface_address() {
  const std::string named = env::kHostInterface.text();
  const std::string names = named.empty() ? "" : fmt::format(",{},", named);
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::string address;
  for (const ifaddrs* one = list; one != nullptr && address.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0) continue;
    const bool wanted = names.size() <= 2
                            ? (one->ifa_flags & IFF_LOOPBACK) == 0
                            : names.find(fmt::format(",{},", one->ifa_name)) != std::string::npos;
    if (wanted) address = numeric(one->ifa_addr, sizeof(sockaddr_in));
  }
  freeifaddrs(list);
  return address;
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text, std::string_view what) {
  std::vector<Host> hosts;
  do {
    const std::size_t comma = std::min(text.find(','), text.size());
    hosts.push_back(parse_host(text.substr(0, comma), what));
    text.remove_prefix(std::min(comma + 1, text.size()));
  } while (!text.empty());
  check_hosts(hosts, what);
  return hosts;
}

std::vector<Host> read_hostfile(const std::string& path) {
  const FileContent file = read_regular_file(path, kMaxHostfileBytes);
  if (!file.ok()) {
    throw InvalidArgument(fmt::format("--hostfile: failed to read '{}': {}", path, file.problem));
  }
  std::vector<Host> hosts;
  std::istringstream lines(file.text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string what = fmt::format("--hostfile: line {} of '{}'", number, path);
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    if (!(words >> name)) continue;
    Host host = parse_host(name, what);
    for (std::string word; words >> word;) {
      constexpr std::string_view kSlots = "slots=";
      if (!word.starts_with(kSlots) || host.ranks) {
        throw InvalidArgument(fmt::format("{}: expected 'name slots=4', but got '{}'", what, word));
      }
      host.ranks = static_cast<int>(env::parse_int(word.substr(kSlots.size()), what, 1, kMaxRanks));
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) {
    throw InvalidArgument(fmt::format("--hostfile: expected hosts in '{}', but got none", path));
  }
  check_hosts(hosts, "--hostfile");
  return hosts;
}

std::vector<Host> expand_nodelist(std::string_view list) {
  const auto malformed = [&] {
    return InvalidArgument(fmt::format(
        "SLURM_JOB_NODELIST: expected nodes such as gpu[003-005,9], but got '{}'", list));
  };
  std::vector<std::string> names{""};  // that the entry so far stands for
  std::vector<Host> hosts;
  const auto end_entry = [&] {
    for (std::string& name : names) {
      if (!is_host_name(name)) throw malformed();
      hosts.push_back({std::move(name), std::nullopt});
    }
    names.assign(1, "");
  };
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == ',') {
      end_entry();
      continue;
    }
    if (list[i] != '[') {
      for (std::string& name : names) name += list[i];
      continue;
    }
    const std::size_t close = list.find(']', i);
    if (close == std::string_view::npos) throw malformed();
    std::vector<std::string> numbers = expand_ranges(list.substr(i + 1, close - i - 1));
    if (numbers.empty() || names.size() * numbers.size() > kMaxRanks) throw malformed();
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    i = close;
  }
  if (!list.empty()) end_entry();
  return hosts;
}

bool is_this_machine(std::string_view name) {
  if (name == "localhost" || name.starts_with("127.")) return true;
  std::array<char, 256> own{};
  if (gethostname(own.data(), own.size() - 1) != 0) return false;
  const std::string_view full = own.data();
  return name == full || name == full.substr(0, full.find('.'));
}

std::string address_for(const std::vector<Host>& hosts) {
  const auto other = std::find_if(hosts.begin(), hosts.end(),
                                  [](const Host& host) { return !is_this_machine(host.name); });
  if (other == hosts.end()) return std::string(kLoopback);
  std::string address;
  if (env::kHostInterface.text().empty()) address = source_address(other->name);
  if (address.empty()) address = interface_address();
  return address.empty() ? std::string(kLoopback) : address;
}

}  // namespace gantry::launcher
