#include "job/store/admission.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/store.hpp>

#include "core/assert.hpp"

namespace gantry::store {
namespace {

constexpr int kMinTokenBits = 128;
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{5'000};
// After this time without a failure a host starts anew.
constexpr std::chrono::minutes kFailureMemory{1};
constexpr std::size_t kMaxFailingHosts = 256;
constexpr std::chrono::seconds kLogPause{1};

std::string peer_host(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST] = {};
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, nullptr,
                  0, NI_NUMERICHOST) != 0) {
    return {};
  }
  return host;
}

}  // namespace

void require_token(const SocketAddress& address, std::string_view token, std::string_view what) {
  if (token.size() > kStoreMaxTokenBytes) {
    throw InvalidArgument(fmt::format("{}: expected at most {} bytes, but got {}", what,
                                      kStoreMaxTokenBytes, token.size()));
  }
  if (address.kind != SocketAddress::Kind::tcp) return;
  constexpr std::string_view kRemedy =
      "`export GANTRY_RDZV_TOKEN=$(cat /proc/sys/kernel/random/uuid)` before the launcher makes "
      "one";
  if (token.size() >= kStoreMinTokenBytes) {
    const double bits = guessing_bits(token);
    if (bits >= kMinTokenBits) return;
    throw InvalidArgument(
        fmt::format("{}: expected a secret of at least {} random bits, but got {} characters that "
                    "have {:.0f} at most; {}",
                    what, kMinTokenBits, token.size(), std::floor(bits), kRemedy));
  }
  throw InvalidArgument(fmt::format(
      "{}: expected a secret of at least {} bytes, the same on all ranks, because any process "
      "that reaches {} could join the job, but got {}; {}",
      what, kStoreMinTokenBytes, address.str(),
      token.empty() ? std::string("none") : fmt::format("{} bytes", token.size()), kRemedy));
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

Admission::Admission(const SocketAddress& address, std::string token)
    : token_(std::move(token)), is_challenged_(address.kind == SocketAddress::Kind::tcp) {
  require_token(address, token_, "StoreServer: token");
}

std::chrono::milliseconds Admission::note_failure(int fd) {
  const Clock::time_point now = Clock::now();
  std::erase_if(failures_,
                [&](const auto& entry) { return now - entry.second.last > kFailureMemory; });
  const std::string host = peer_host(fd);
  if (failures_.size() >= kMaxFailingHosts && !failures_.contains(host)) {
    failures_.erase(std::min_element(
        failures_.begin(), failures_.end(),
        [](const auto& a, const auto& b) { return a.second.last < b.second.last; }));
  }
  Failures& failures = failures_[host];
  failures.last = now;
  constexpr int kMostDoublings = 10;  // beyond the longest pause
  const int doublings = std::min(failures.count++, kMostDoublings);
  return std::min(kLongestPause, kFirstPause * (1 << doublings));
}

void Admission::log_refusal(int fd, std::string_view why) {
  // An unauthenticated client may retry without end.
  const Clock::time_point now = Clock::now();
  if (has_warned_ && now - last_log_ < kLogPause) {
    ++unlogged_;
    return;
  }
  last_log_ = now;
  const std::uint64_t others = std::exchange(unlogged_, 0);
  const std::string text =
      fmt::format("store: turned away {}: {}{}", peer_text(fd), why,
                  others == 0 ? "" : fmt::format(" ({} others since the last line)", others));
  std::exchange(has_warned_, true) ? logging::debug(text) : logging::warn(text);
}

void Admission::add(std::uint64_t connection) {
  GANTRY_ASSERT(!places_.contains(connection), "a connection is new twice");
  places_[connection] = unintroduced_.insert(unintroduced_.end(), connection);
}

void Admission::remove(std::uint64_t connection) {
  const auto found = places_.find(connection);
  if (found == places_.end()) return;
  GANTRY_ASSERT(*found->second == connection, "a connection is in the place of another one");
  unintroduced_.erase(found->second);
  places_.erase(found);
}

std::optional<std::uint64_t> Admission::oldest_beyond(std::size_t kept) const {
  GANTRY_ASSERT(unintroduced_.size() == places_.size(), "an unintroduced connection has no place");
  if (unintroduced_.size() <= kept) return std::nullopt;
  return unintroduced_.front();
}

}  // namespace gantry::store
