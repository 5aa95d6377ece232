#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

// Stream sockets: addresses, listeners, connections.
namespace gantry {

/// Address of a stream socket.
struct SocketAddress {
  enum class Kind { unix_abstract, unix_path, tcp };
  Kind kind = Kind::unix_abstract;
  std::string name;  ///< socket name or path; host for tcp
  int port = 0;

  [[nodiscard]] std::string str() const;
};

/// Parses "unix:@name", "unix:/path" or "tcp:host:port" ("tcp:[::1]:port"). Throws InvalidArgument.
[[nodiscard]] SocketAddress parse_socket_address(std::string_view text);

/// Opens non-blocking listening sockets at all of the address's host that this machine has. Port 0
/// picks a port, which is filled in, at the first of them alone.
/// Throws Error, also if one of several addresses is in use: clients would meet its owner.
[[nodiscard]] std::vector<UniqueFd> listen_at_all(SocketAddress& address);
/// As listen_at_all(), for an address whose host has one address. Returns the first socket.
[[nodiscard]] UniqueFd listen_at(SocketAddress& address);

/// Takes a new connection, until `deadline`. False: the next address may be better.
using Introduction =
    std::function<bool(UniqueFd& fd, std::chrono::steady_clock::time_point deadline)>;
/// As connect_to(), for the first connection of the host's addresses that `introduce` takes. True
/// if there is one. Throws as `introduce`, too.
[[nodiscard]] bool connect_to_any(const SocketAddress& address,
                                  std::chrono::steady_clock::time_point deadline,
                                  const Introduction& introduce);
/// Tries once to connect; none if no process listens there (yet), or the host's name is not known
/// (yet). Of a host's several addresses none gets more than some seconds. Non-blocking socket.
/// Throws Error for failures that waiting does not cure.
[[nodiscard]] std::optional<UniqueFd> connect_to(const SocketAddress& address,
                                                 std::chrono::steady_clock::time_point deadline);
/// Waits until `fd` has one of `events` (POLLIN, POLLOUT) or has failed; false at the deadline.
/// Signals do not end it.
[[nodiscard]] bool await_ready(int fd, short events,
                               std::chrono::steady_clock::time_point deadline);
/// Makes a TCP connection send what it has at once, and notice when the other machine is gone.
void send_small_messages_at_once(int fd, const SocketAddress& address);
/// True if the process at the other end of a unix socket runs as this user or as root.
[[nodiscard]] bool unix_peer_is_trusted(int fd);
/// As unix_peer_is_trusted(); always true for TCP.
[[nodiscard]] bool peer_is_trusted(int fd, const SocketAddress& address);

}  // namespace gantry
