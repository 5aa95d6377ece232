#include "job/store/admission.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/store.hpp>

namespace gantry::store {

void require_token(const SocketAddress& address, std::string_view token, std::string_view what) {
  if (token.size() > kStoreMaxTokenBytes) {
    throw InvalidArgument(fmt::format("{}: expected at most {} bytes, but got {}", what,
                                      kStoreMaxTokenBytes, token.size()));
  }
  if (address.kind != SocketAddress::Kind::tcp || token.size() >= kStoreMinTokenBytes) return;
  throw InvalidArgument(fmt::format(
      "{}: expected a secret of at least {} bytes, the same on all ranks, because any process "
      "that reaches {} could join the job, but got {}; `export GANTRY_RDZV_TOKEN=$(cat "
      "/proc/sys/kernel/random/uuid)` before the launcher makes one",
      what, kStoreMinTokenBytes, address.str(),
      token.empty() ? std::string("none") : fmt::format("{} bytes", token.size())));
}

bool equal_secrets(std::string_view secret, std::string_view given) noexcept {
  // No branch depends on the secret; volatile keeps the compiler from leaving the loop early.
  volatile unsigned char difference = secret.size() == given.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char expected = secret.empty() ? '\0' : secret[i % secret.size()];
    difference = static_cast<unsigned char>(difference | (expected ^ given[i]));
  }
  return difference == 0;
}

std::string peer_text(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "a connection";
  if (address.ss_family == AF_UNIX) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return "a process";
    return fmt::format("process {} of user {}", peer.pid, peer.uid);
  }
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, port,
                  sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "a connection";
  }
  return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                       : fmt::format("{}:{}", host, port);
}

Admission::Admission(const SocketAddress& address, std::string token) : token_(std::move(token)) {
  require_token(address, token_, "StoreServer: token");
}

void Admission::log_refusal(int fd, std::string_view why) {
  const std::string text = fmt::format("store: turned away {}: {}", peer_text(fd), why);
  // An unauthenticated client may retry without end.
  std::exchange(has_warned_, true) ? logging::debug(text) : logging::warn(text);
}

void Admission::add(std::uint64_t connection) {
  places_[connection] = unintroduced_.insert(unintroduced_.end(), connection);
}

void Admission::remove(std::uint64_t connection) {
  const auto found = places_.find(connection);
  if (found == places_.end()) return;
  unintroduced_.erase(found->second);
  places_.erase(found);
}

std::optional<std::uint64_t> Admission::oldest_beyond(std::size_t kept) const {
  if (unintroduced_.size() <= kept) return std::nullopt;
  return unintroduced_.front();
}

}  // namespace gantry::store
