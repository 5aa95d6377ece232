#include "core/files/socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

namespace gantry {
namespace {

constexpr auto kAddressTimeout = std::chrono::seconds(3);
constexpr std::int64_t kMostPollMs = 1'000'000;

struct UnixName {
  sockaddr_un address{};
  socklen_t length = 0;
};

UnixName unix_name(const SocketAddress& address) {
  UnixName result;
  result.address.sun_family = AF_UNIX;
  const bool abstract = address.kind == SocketAddress::Kind::unix_abstract;
  std::memcpy(result.address.sun_path + (abstract ? 1 : 0), address.name.data(),
              address.name.size());
  // An abstract name is exactly its bytes; a path ends with a null byte.
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.name.size() + 1);
  return result;
}

struct AddrinfoDeleter {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddrinfoList = std::unique_ptr<addrinfo, AddrinfoDeleter>;

// Nothing if the name cannot be looked up for the moment.
AddrinfoList resolve(const SocketAddress& address, bool passive) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* list = nullptr;
  const bool any = passive && address.name == "*";
  const int status = getaddrinfo(any ? nullptr : address.name.c_str(),
                                 std::to_string(address.port).c_str(), &hints, &list);
  if (status == EAI_AGAIN) return nullptr;
  if (status != 0) {
    throw Error(fmt::format("socket: failed to resolve the host of '{}': {}", address.str(),
                            gai_strerror(status)));
  }
  return AddrinfoList(list);
}

[[noreturn]] void fail(const char* what, const SocketAddress& address, int code) {
  throw Error(fmt::format("socket: failed to {} {}: {}", what, address.str(), std::strerror(code)));
}

std::string text_of(const addrinfo& entry) {
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  if (getnameinfo(entry.ai_addr, entry.ai_addrlen, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "one of its addresses";
  }
  return entry.ai_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                     : fmt::format("{}:{}", host, port);
}

[[noreturn]] void fail_in_use(const SocketAddress& address, const addrinfo& entry) {
  throw Error(
      fmt::format("socket: failed to listen at {}: {}: {}; another process has this port, and "
                  "processes that looked for this one may have met that one; choose another port",
                  address.str(), text_of(entry), std::strerror(EADDRINUSE)));
}

// True if an entry before `entry` has its address.
bool is_repeated(const addrinfo* list, const addrinfo* entry) {
  for (; list != entry; list = list->ai_next) {
    if (list->ai_addrlen == entry->ai_addrlen &&
        std::memcmp(list->ai_addr, entry->ai_addr, entry->ai_addrlen) == 0) {
      return true;
    }
  }
  return false;
}

// A listening socket at the address; none, with the reason in errno, if it cannot be had.
UniqueFd listen_at_entry(const addrinfo& entry, bool is_only_one) {
  UniqueFd fd(socket(entry.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fd;
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // Beside a socket for IPv4, one for IPv6 is for IPv6 alone.
  if (entry.ai_family == AF_INET6 && !is_only_one) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  if (bind(fd.get(), entry.ai_addr, entry.ai_addrlen) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    const int code = errno;
    fd.reset();
    errno = code;
  }
  return fd;
}

int port_of(const UniqueFd& fd) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

// A socket file whose server is dead only stands in the way. Other files refuse connections, too,
// and a server whose queue of connections is full answers EAGAIN.
void remove_stale_socket(const SocketAddress& address) {
  struct stat status {};
  if (lstat(address.name.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail("open a socket for", address, errno);
  const UnixName name = unix_name(address);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0 &&
      errno == ECONNREFUSED) {
    unlink(address.name.c_str());
  }
}

// While no process listens at a port that the system also gives to connections, one that comes from
// that very port meets itself: TCP opens it from both sides.
bool is_connected_to_itself(int fd) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_length = sizeof here;
  socklen_t there_length = sizeof there;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_length) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_length) == 0 &&
         here_length == there_length && std::memcmp(&here, &there, here_length) == 0;
}

}  // namespace

std::string SocketAddress::str() const {
  switch (kind) {
    case Kind::unix_abstract:
      return "unix:@" + name;
    case Kind::unix_path:
      return "unix:" + name;
    case Kind::tcp:
      return name.find(':') == std::string::npos ? fmt::format("tcp:{}:{}", name, port)
                                                 : fmt::format("tcp:[{}]:{}", name, port);
  }
  return {};
}

SocketAddress parse_socket_address(std::string_view text) {
  const auto fail_with = [&](std::string_view why) -> SocketAddress {
    throw InvalidArgument(fmt::format(
        "store address: expected unix:@name, unix:/path or tcp:host:port, but got '{}'{}", text,
        why));
  };
  SocketAddress result;
  constexpr std::size_t kMaxName = sizeof(sockaddr_un::sun_path) - 1;
  if (text.starts_with("unix:@") || text.starts_with("unix:/")) {
    const bool abstract = text[5] == '@';
    result.kind = abstract ? SocketAddress::Kind::unix_abstract : SocketAddress::Kind::unix_path;
    result.name = text.substr(abstract ? 6 : 5);
    if (result.name.empty()) return fail_with(" (no name)");
    if (result.name.size() > kMaxName) {
      return fail_with(fmt::format(" (more than {} bytes)", kMaxName));
    }
    if (result.name.find('\0') != std::string::npos) return fail_with(" (null byte)");
    return result;
  }
  if (!text.starts_with("tcp:")) return fail_with("");
  result.kind = SocketAddress::Kind::tcp;
  std::string_view rest = text.substr(4);
  const auto colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return fail_with("");
  std::string_view host = rest.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return fail_with(" (an IPv6 address stands in brackets)");
  }
  result.name = host;
  result.port = static_cast<int>(
      env::parse_int(rest.substr(colon + 1), fmt::format("port of '{}'", text), 0, 65535));
  return result;
}

std::vector<UniqueFd> listen_at_all(SocketAddress& address) {
  std::vector<UniqueFd> listeners;
  if (address.kind != SocketAddress::Kind::tcp) {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) fail("open a socket for", address, errno);
    const UnixName name = unix_name(address);
    const auto* raw = reinterpret_cast<const sockaddr*>(&name.address);
    int status = bind(fd.get(), raw, name.length);
    if (status != 0 && errno == EADDRINUSE && address.kind == SocketAddress::Kind::unix_path) {
      remove_stale_socket(address);
      status = bind(fd.get(), raw, name.length);
    }
    if (status != 0 || listen(fd.get(), SOMAXCONN) != 0) fail("listen at", address, errno);
    listeners.push_back(std::move(fd));
    return listeners;
  }
  int code = EADDRNOTAVAIL;
  const AddrinfoList list = resolve(address, true);
  if (list == nullptr) code = EAGAIN;
  const bool is_only_one = list == nullptr || list->ai_next == nullptr;
  const SocketAddress wanted = address;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    if (is_repeated(list.get(), entry)) continue;
    // An address of another machine or of a family that this one lacks leaves the others.
    UniqueFd fd = listen_at_entry(*entry, is_only_one);
    if (!fd) {
      code = errno;
      if (code == EADDRINUSE) fail_in_use(wanted, *entry);
      continue;
    }
    if (listeners.empty()) address.port = port_of(fd);
    listeners.push_back(std::move(fd));
    if (wanted.port == 0) break;
  }
  if (listeners.empty()) fail("listen at", address, code);
  return listeners;
}

UniqueFd listen_at(SocketAddress& address) { return std::move(listen_at_all(address).front()); }

std::optional<UniqueFd> connect_to(const SocketAddress& address,
                                   std::chrono::steady_clock::time_point deadline) {
  std::optional<UniqueFd> connection;
  (void)connect_to_any(address, deadline, [&](UniqueFd& fd, auto) {
    connection = std::move(fd);
    return true;
  });
  return connection;
}

bool connect_to_any(const SocketAddress& address, std::chrono::steady_clock::time_point deadline,
                    const Introduction& introduce) {
  if (address.kind != SocketAddress::Kind::tcp) {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) fail("open a socket for", address, errno);
    const UnixName name = unix_name(address);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) == 0) {
      return introduce(fd, deadline);
    }
    // EAGAIN: the server's queue of connections is full for the moment.
    if (errno == ECONNREFUSED || errno == ENOENT || errno == EAGAIN) return false;
    fail("connect to", address, errno);
  }
  const AddrinfoList list = resolve(address, false);
  const bool is_only_one = list == nullptr || list->ai_next == nullptr;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    UniqueFd fd(socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // No socket of this family; without descriptors nothing is known of the other side.
    if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      fail("open a socket for", address, errno);
    }
    if (!fd) continue;
    const auto now = std::chrono::steady_clock::now();
    // One that answers nothing must not take the others' time.
    const auto until = is_only_one ? deadline : std::min(deadline, now + kAddressTimeout);
    if (connect(fd.get(), entry->ai_addr, entry->ai_addrlen) != 0) {
      if (errno != EINPROGRESS) continue;
      if (!await_ready(fd.get(), POLLOUT, until)) continue;
      int code = 0;
      socklen_t length = sizeof code;
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &code, &length);
      if (code != 0) continue;
    }
    if (is_connected_to_itself(fd.get())) continue;
    send_small_messages_at_once(fd.get(), address);
    if (introduce(fd, until)) return true;
  }
  return false;
}

bool await_ready(int fd, short events, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd entry{fd, events, 0};
    const int ready =
        poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, kMostPollMs)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0 && left.count() <= 0) return false;
  }
}

void send_small_messages_at_once(int fd, const SocketAddress& address) {
  if (address.kind != SocketAddress::Kind::tcp) return;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

bool unix_peer_is_trusted(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return false;
  return credentials.uid == geteuid() || credentials.uid == 0;
}

bool peer_is_trusted(int fd, const SocketAddress& address) {
  return address.kind == SocketAddress::Kind::tcp || unix_peer_is_trusted(fd);
}

}  // namespace gantry
