#include "job/store/connections.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/assert.hpp"

namespace gantry::store {
namespace {

constexpr std::uint64_t kListener = 0, kWake = 1, kFirstClient = 2;

// The largest job has 4096 ranks; observers come on top.
constexpr std::size_t kMaxClients = 4 * 4096;
constexpr int kRetryMs = 50;

}  // namespace

Connections::Connections(const SocketAddress& address, std::string token, int wake,
                         Handler& handler)
    : handler_(handler),
      address_(address),
      admission_(address, std::move(token)),
      next_serial_(kFirstClient) {
  if (admission_.is_challenged()) require_message_tags("StoreServer");
  listeners_ = listen_at_all(address_);
  poll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!poll_) throw Error(fmt::format("store: {}", std::strerror(errno)));
  watch(EPOLL_CTL_ADD, wake, kWake, EPOLLIN);
  for (const UniqueFd& listener : listeners_) {
    watch(EPOLL_CTL_ADD, listener.get(), kListener, EPOLLIN);
  }
}

void Connections::watch_listeners(std::uint32_t events) const {
  for (const UniqueFd& listener : listeners_) {
    watch(EPOLL_CTL_MOD, listener.get(), kListener, events);
  }
}

int Connections::wait_ms() const {
  int wait = listens_again_ ? kRetryMs : -1;
  if (!late_refusals_.empty()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        late_refusals_.begin()->first - std::chrono::steady_clock::now());
    const int due = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    wait = wait < 0 ? due : std::min(wait, due);
  }
  return wait;
}

void Connections::watch(int operation, int fd, std::uint64_t tag, std::uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  epoll_ctl(poll_.get(), operation, fd, &event);
}

void Connections::run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = epoll_wait(poll_.get(), events.data(), events.size(), wait_ms());
    for (int i = 0; i < count; ++i) {
      const std::uint64_t tag = events[i].data.u64;
      if (tag == kListener) {
        accept_clients();
      } else if (tag == kWake) {
        if (!handler_.wake()) return;
      } else if (const auto found = clients_.find(tag); found != clients_.end()) {
        if (events[i].events & EPOLLOUT) flush(found->second);
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(found->second);
      }
    }
    send_late_refusals();
    drop_dead_clients();
    if (listens_again_ && std::chrono::steady_clock::now() >= *listens_again_) listen_again();
  }
}

Connection* Connections::find(std::uint64_t serial) {
  const auto found = clients_.find(serial);
  return found == clients_.end() ? nullptr : &found->second;
}

bool Connections::read_rest(int rank) {
  bool is_connected = false;
  for (auto& [serial, client] : clients_) {
    if (client.rank != rank || is_dead(client)) continue;
    receive(client, INT_MAX);
    is_connected |= !is_dead(client);
  }
  return is_connected;
}

void Connections::introduce(Connection& client) {
  GANTRY_ASSERT(!client.introduced, "a client introduces itself twice");
  client.introduced = true;
  admission_.remove(client.serial);
}

void Connections::accept_clients() {
  std::size_t at = 0;
  while (clients_.size() < kMaxClients) {
    const int fd = accept4(listeners_[at].get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) {
        if (++at < listeners_.size()) continue;
        return;
      }
      if (drop_silent_client(0)) continue;
      // Descriptors may be free again without that any client leaves.
      listens_again_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(kRetryMs);
      break;
    }
    const std::uint64_t serial = next_serial_++;
    Connection& client = clients_[serial];
    client.serial = serial;
    client.fd = UniqueFd(fd);
    send_small_messages_at_once(fd, address_);
    watch(EPOLL_CTL_ADD, fd, serial, EPOLLIN);
    if (!peer_is_trusted(fd, address_)) {
      refuse(client, 0, "it belongs to another user");
      continue;
    }
    admission_.add(serial);
    (void)drop_silent_client(Admission::kMaxUnintroduced);
  }
  // Full, or out of descriptors: look again when a client has left.
  watch_listeners(0);
  deaf_ = true;
}

bool Connections::drop_silent_client(std::size_t kept) {
  const auto oldest = admission_.oldest_beyond(kept);
  if (!oldest) return false;
  const auto found = clients_.find(*oldest);
  GANTRY_ASSERT(found != clients_.end() && !found->second.introduced,
                "an unintroduced client is none, or has introduced itself");
  Connection& client = found->second;
  // Its hello may lie there.
  receive(client);
  if (!client.introduced) close(client);
  const bool goes = is_dead(client);
  if (goes) drop_dead_clients();
  return goes;
}

void Connections::listen_again() {
  deaf_ = false;
  listens_again_.reset();
  watch_listeners(EPOLLIN);
}

void Connections::receive(Connection& client, int turns) {
  std::array<char, 65536> chunk;
  for (int turn = 0; turn < turns; ++turn) {
    const ssize_t got = recv(client.fd.get(), chunk.data(), chunk.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return close(client);
    if (client.is_refused) continue;  // whatever else it says
    client.input.append({chunk.data(), static_cast<std::size_t>(got)});
    while (!is_dead(client) && !client.is_refused) {
      auto body = client.input.next(client.introduced ? kMaxMessageBytes : kMaxHelloBytes);
      if (!body) break;
      const bool is_unchanged = !client.seal || client.seal->open(*body);
      Reader message(is_unchanged ? *body : std::string_view());
      if (!is_unchanged || !handler_.handle(client, message)) close(client);
    }
    if (client.input.broken()) close(client);
    if (is_dead(client)) return;
  }
}

void Connections::refuse(Connection& client, std::uint64_t id, std::string_view why) {
  admission_.log_refusal(client.fd.get(), why);
  send(client, Writer(Message::refused, id).text(why).finish());
  close(client);
}

void Connections::refuse_late(Connection& client, std::uint64_t id, std::string_view why) {
  client.is_refused = true;
  late_refusals_.emplace(
      std::chrono::steady_clock::now() + admission_.note_failure(client.fd.get()),
      LateRefusal{client.serial, id, std::string(why)});
}

void Connections::send_late_refusals() {
  const auto now = std::chrono::steady_clock::now();
  while (!late_refusals_.empty() && late_refusals_.begin()->first <= now) {
    const auto due = late_refusals_.extract(late_refusals_.begin());
    const LateRefusal& refusal = due.mapped();
    Connection* const client = find(refusal.client);
    if (client != nullptr && !is_dead(*client)) refuse(*client, refusal.request, refusal.why);
  }
}

void Connections::send(Connection& client, std::string message) {
  settle(client, client.send(std::move(message)));
}

void Connections::send_value(Connection& client, std::uint64_t id, std::string_view value) {
  settle(client, client.send_value(Message::ok, id, value));
}

void Connections::flush(Connection& client) {
  client.flush();
  settle(client, true);
}

void Connections::settle(Connection& client, bool fits) {
  if (!fits) close(client);
  const bool rest = !client.unsent.empty();
  if (rest != client.wants_write) {
    client.wants_write = rest;
    const std::uint32_t events = rest ? EPOLLIN | EPOLLOUT : EPOLLIN;
    watch(EPOLL_CTL_MOD, client.fd.get(), client.serial, events);
  }
}

void Connections::drop_dead_clients() {
  // Telling the others of a loss may find more dead clients.
  while (!dead_.empty()) {
    const std::uint64_t serial = *dead_.begin();
    dead_.erase(dead_.begin());
    const auto client = clients_.extract(serial);
    GANTRY_ASSERT(client.empty() || client.mapped().serial == serial,
                  "a client has the serial number of another one");
    if (client.empty()) continue;
    admission_.remove(serial);
    if (client.mapped().is_refused) {
      std::erase_if(late_refusals_, [&](const auto& due) { return due.second.client == serial; });
    }
    client.mapped().fd.reset();
    handler_.closed(client.mapped());
    if (deaf_) listen_again();
  }
}

}  // namespace gantry::store
