#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/files/socket.hpp"

namespace gantry::store {

// Note [Who may use a store]
// A unix socket identifies the user of its peer: this user and root are admitted. A TCP port
// identifies no user, and every process that can reach the machine can connect. A store at a TCP
// address therefore always has a token. It answers no request before a client has presented the
// token. The token is sent unencrypted: it keeps unauthenticated clients out, but does not protect
// messages from eavesdroppers.

/// Throws InvalidArgument unless a store at `address` is protected: over TCP it needs a token of at
/// least kStoreMinTokenBytes. `what` names the token in the error.
void require_token(const SocketAddress& address, std::string_view token, std::string_view what);

/// True if the two are equal. The time it takes depends on the length of `given` alone.
[[nodiscard]] bool equal_secrets(std::string_view secret, std::string_view given) noexcept;

/// The peer of `fd`: "10.0.0.7:41234" or "process 123 of user 1000".
[[nodiscard]] std::string peer_text(int fd);

/// Admits clients to a store, and bounds the connections that have not presented a token.
///
/// Thread safety: none; the serving thread owns it.
class Admission {
 public:
  /// Unintroduced connections that are kept; the ranks of a job introduce themselves at once.
  static constexpr std::size_t kMaxUnintroduced = 256;

  /// Throws: InvalidArgument as require_token().
  Admission(const SocketAddress& address, std::string token);

  [[nodiscard]] bool accepts(std::string_view token) const noexcept {
    return equal_secrets(token_, token);
  }
  /// Logs that the connection `fd` is turned away: the first one as a warning.
  void log_refusal(int fd, std::string_view why);

  /// Notes a connection that has not introduced itself, and that it has done so or is gone.
  void add(std::uint64_t connection);
  void remove(std::uint64_t connection);
  /// The unintroduced connection that came first, if there are more than `kept`.
  [[nodiscard]] std::optional<std::uint64_t> oldest_beyond(std::size_t kept) const;

 private:
  std::string token_;
  bool has_warned_ = false;
  std::list<std::uint64_t> unintroduced_;  // in order of arrival
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> places_;
};

}  // namespace gantry::store
