#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/authentication/keys.hpp"
#include "core/files/socket.hpp"

namespace gantry::store {

// Note [Who may use a store]
// A unix socket identifies the user of its peer: this user and root are admitted. A TCP port
// identifies no user, and every process that can reach the machine can connect. A store at a TCP
// address therefore always has a token. It answers no request before a client has proved that it
// knows the token: see Note [The handshake of a store]. A process that has no token can have its
// connection refused and no more: connections without a proof are few, wrong proofs are answered
// late, and the log has a bounded number of lines.

/// Throws InvalidArgument unless a store at `address` is protected: over TCP it needs a token of at
/// least kStoreMinTokenBytes that cannot be guessed. `what` names the token in the error.
void require_token(const SocketAddress& address, std::string_view token, std::string_view what);

using gantry::equal_secrets;

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

  /// True if clients are challenged; else they present the token itself.
  [[nodiscard]] bool is_challenged() const noexcept { return is_challenged_; }
  [[nodiscard]] const std::string& token() const noexcept { return token_; }
  [[nodiscard]] bool accepts(std::string_view token) const noexcept {
    return equal_secrets(token_, token);
  }
  /// Counts a wrong proof that came over `fd`. Returns the time until its answer, which doubles
  /// with each one from the same host, up to some seconds.
  [[nodiscard]] std::chrono::milliseconds note_failure(int fd);
  /// Logs that the connection `fd` is turned away: the first one as a warning, later ones at most
  /// once a second.
  void log_refusal(int fd, std::string_view why);

  /// Notes a connection that has not introduced itself, and that it has done so or is gone.
  void add(std::uint64_t connection);
  void remove(std::uint64_t connection);
  /// The unintroduced connection that came first, if there are more than `kept`.
  [[nodiscard]] std::optional<std::uint64_t> oldest_beyond(std::size_t kept) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Failures {
    int count = 0;
    Clock::time_point last;
  };

  std::string token_;
  bool is_challenged_;
  std::map<std::string, Failures> failures_;  // by host
  bool has_warned_ = false;
  Clock::time_point last_log_{};
  std::uint64_t unlogged_ = 0;
  std::list<std::uint64_t> unintroduced_;  // in order of arrival
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> places_;
};

}  // namespace gantry::store
