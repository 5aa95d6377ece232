#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <variant>

#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>

#include "core/files/socket.hpp"
#include "core/processes/background_thread.hpp"
#include "job/store_admission.hpp"
#include "job/store_connection.hpp"
#include "job/store_membership.hpp"
#include "job/store_messages.hpp"
#include "job/store_reports.hpp"
#include "job/store_table.hpp"
#include "job/store_waiter.hpp"

namespace gantry {

using Client = store::Connection;
using store::Message;
using store::Reader;
using store::Waiter;
using store::Writer;

namespace {

constexpr std::uint64_t kListener = 0, kWake = 1, kFirstClient = 2;

// The largest job has 4096 ranks; observers come on top.
constexpr std::size_t kMaxClients = 4 * 4096;
constexpr int kRetryMs = 50;

}  // namespace

class StoreServer::Impl {
 public:
  explicit Impl(const StoreServerOptions& options)
      : address_(parse_socket_address(options.address)), admission_(address_, options.token) {
    listener_ = listen_at(address_);
    text_ = address_.str();
    poll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    if (!poll_) throw Error(fmt::format("store: {}", std::strerror(errno)));
    watch(EPOLL_CTL_ADD, reports_.descriptor(), kWake, EPOLLIN);
    watch(EPOLL_CTL_ADD, listener_.get(), kListener, EPOLLIN);
    thread_ = start_background_thread("gantry-store", [this] { run(); });
  }

  ~Impl() {
    if (getpid() != owner_) {  // a child of a fork: all of this is the parent's
      abandon_after_fork(std::move(thread_));
      return;
    }
    reports_.stop();
    thread_.join();
    if (address_.kind == SocketAddress::Kind::unix_path) unlink(address_.name.c_str());
  }

  const std::string& address() const { return text_; }

  void report(int rank, bool in_order) { reports_.add({rank, in_order}); }

  const store::JobMembership& membership() const { return membership_; }
  std::uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }

 private:
  void watch(int operation, int fd, std::uint64_t tag, std::uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = tag;
    epoll_ctl(poll_.get(), operation, fd, &event);
  }

  void run() {
    std::array<epoll_event, 64> events;
    for (;;) {
      const int timeout_ms = listens_again_ ? kRetryMs : -1;
      const int count = epoll_wait(poll_.get(), events.data(), events.size(), timeout_ms);
      for (int i = 0; i < count; ++i) {
        const std::uint64_t tag = events[i].data.u64;
        if (tag == kListener) {
          accept_clients();
        } else if (tag == kWake) {
          if (!take_reports()) return;
        } else if (const auto found = clients_.find(tag); found != clients_.end()) {
          if (events[i].events & EPOLLOUT) flush(tag, found->second);
          if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(tag, found->second);
        }
      }
      drop_dead_clients();
      if (listens_again_ && std::chrono::steady_clock::now() >= *listens_again_) listen_again();
    }
  }

  // Handles what other threads asked for; false: stop.
  bool take_reports() {
    const std::optional<std::vector<store::Report>> reports = reports_.take();
    if (!reports) return false;
    for (const auto& [rank, in_order] : *reports) {
      in_order ? note_end(rank) : declare_lost(rank);
    }
    return true;
  }

  void accept_clients() {
    while (clients_.size() < kMaxClients) {
      const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN) return;
        if (drop_silent_client(0)) continue;
        // Descriptors may be free again without that any client leaves.
        listens_again_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(kRetryMs);
        break;
      }
      const std::uint64_t serial = next_serial_++;
      Client& client = clients_[serial];
      client.fd = UniqueFd(fd);
      send_small_messages_at_once(fd, address_);
      watch(EPOLL_CTL_ADD, fd, serial, EPOLLIN);
      if (!peer_is_trusted(fd, address_)) {
        refuse(serial, client, 0, "it belongs to another user");
        continue;
      }
      admission_.add(serial);
      (void)drop_silent_client(store::Admission::kMaxUnintroduced);
    }
    // Full, or out of descriptors: look again when a client has left.
    watch(EPOLL_CTL_MOD, listener_.get(), kListener, 0);
    deaf_ = true;
  }

  // Makes room by the oldest of more than `kept` connections that have said nothing; a client of
  // ours comes again. True if there is room for another one.
  bool drop_silent_client(std::size_t kept) {
    const auto oldest = admission_.oldest_beyond(kept);
    if (!oldest) return false;
    const auto found = clients_.find(*oldest);
    // Its hello may lie there.
    receive(*oldest, found->second);
    if (!dead_.contains(*oldest) && !found->second.introduced) dead_.insert(*oldest);
    const bool goes = dead_.contains(*oldest);
    if (goes) drop_dead_clients();
    return goes;
  }

  void listen_again() {
    deaf_ = false;
    listens_again_.reset();
    watch(EPOLL_CTL_MOD, listener_.get(), kListener, EPOLLIN);
  }

  // A bounded number of reads, so that one busy client cannot starve the rest.
  void receive(std::uint64_t serial, Client& client, int turns = 16) {
    std::array<char, 65536> chunk;
    for (int turn = 0; turn < turns; ++turn) {
      const ssize_t got = recv(client.fd.get(), chunk.data(), chunk.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) {
        dead_.insert(serial);
        return;
      }
      client.input.append({chunk.data(), static_cast<std::size_t>(got)});
      while (!dead_.contains(serial)) {
        const auto body =
            client.input.next(client.introduced ? store::kMaxMessageBytes : store::kMaxHelloBytes);
        if (!body) break;
        Reader message(*body);
        if (!handle(serial, client, message)) dead_.insert(serial);
      }
      if (client.input.broken()) dead_.insert(serial);
      if (dead_.contains(serial)) return;
    }
  }

  // Answers one message; false if it is not one that a client of ours would send.
  bool handle(std::uint64_t serial, Client& client, Reader& in) {
    if (!client.introduced) return introduce(serial, client, in);
    requests_.fetch_add(1, std::memory_order_relaxed);
    switch (in.kind()) {
      case Message::deregister:
        client.has_deregistered = true;
        membership_.deregister(client.rank);
        dead_.insert(serial);
        return in.finished();
      case Message::set: {
        const std::string_view key = in.text();
        const std::string_view value = in.text();
        if (!in.finished() || !store::is_valid_entry(key, value)) return false;
        if (!write_value(serial, client, in.id(), key, value)) return true;
        send(serial, client, Writer(Message::ok, in.id()).finish());
        return true;
      }
      case Message::get:
      case Message::wait:
      case Message::gather: {
        std::optional<Waiter> waiter = store::read_waiter(serial, in);
        return waiter && start_wait(std::move(*waiter));
      }
      case Message::exchange:
        return exchange(serial, client, in);
      case Message::try_get: {
        const std::string_view key = in.text();
        if (!in.finished()) return false;
        const std::string* value = table_.find(key);
        if (value != nullptr) return send_value(serial, client, in.id(), *value);
        send(serial, client, Writer(Message::missing, in.id()).finish());
        return true;
      }
      case Message::add: {
        const std::string_view key = in.text();
        const std::int64_t delta = in.i64();
        return in.finished() && store::is_valid_entry(key, {}) &&
               add(serial, client, in.id(), key, delta);
      }
      case Message::compare_and_set: {
        const std::string_view key = in.text();
        const std::string_view expected = in.text();
        const std::string_view desired = in.text();
        if (!in.finished() || !store::is_valid_entry(key, desired)) return false;
        const std::string* value = table_.find(key);
        const std::string current = value == nullptr ? std::string() : *value;
        const bool equal = current == expected;
        if (equal && !write_value(serial, client, in.id(), key, desired)) return true;
        send(serial, client, Writer(Message::ok, in.id()).text(equal ? desired : current).finish());
        return true;
      }
      case Message::erase: {
        const std::string_view key = in.text();
        if (!in.finished()) return false;
        const bool there = table_.erase(key);
        send(serial, client, Writer(there ? Message::ok : Message::missing, in.id()).finish());
        return true;
      }
      case Message::cancel:
        if (in.id() == 0) return false;
        table_.forget(serial, in.id());
        return in.finished();
      case Message::hello:
      case Message::ok:
      case Message::missing:
      case Message::lost:
      case Message::refused:
      case Message::outdated:
        return false;
    }
    return false;
  }

  bool introduce(std::uint64_t serial, Client& client, Reader& in) {
    const std::uint32_t magic = in.u32();
    const std::int64_t rank = in.i64();
    const std::string_view token = in.text();
    if (in.kind() != Message::hello || !in.finished() || magic != store::kMagic) return false;
    if (rank < -1 || rank > store::kMaxRank) return false;
    if (!admission_.accepts(token)) {
      refuse(serial, client, in.id(), "its token is not this job's");
      return true;
    }
    if (rank >= 0 && is_connected(static_cast<int>(rank))) {
      refuse(serial, client, in.id(), fmt::format("rank {} is connected already", rank));
      return true;
    }
    client.introduced = true;
    admission_.remove(serial);
    client.rank = static_cast<int>(rank);
    if (client.rank >= 0) membership_.connect(client.rank);
    send(serial, client, Writer(Message::ok, in.id()).finish());
    for (const int lost : membership_.lost()) send_lost(serial, client, 0, lost);
    return true;
  }

  // True if another connection has given `rank`. Its request to deregister may be unread.
  bool is_connected(int rank) {
    if (!membership_.is_connected(rank)) return false;
    for (auto& [serial, client] : clients_) {
      if (client.rank != rank || dead_.contains(serial)) continue;
      receive(serial, client, INT_MAX);
      if (!dead_.contains(serial)) return true;
    }
    return false;
  }

  // False, with the client told why, if the store is full.
  bool write_value(std::uint64_t serial, Client& client, std::uint64_t id, std::string_view key,
                   std::string_view value) {
    if (!table_.write(key, value)) {
      send(serial, client,
           Writer(Message::refused, id)
               .text(fmt::format("the store holds at most {} bytes", store::kMaxTableBytes))
               .finish());
      return false;
    }
    wake_waiters(std::string(key));
    return true;
  }

  bool exchange(std::uint64_t serial, Client& client, Reader& in) {
    std::optional<store::Exchange> part = store::read_exchange(serial, in);
    if (!part) return false;
    if (!part->outdated.empty()) table_.erase(part->outdated);
    return !write_value(serial, client, in.id(), part->key, part->value) ||
           start_wait(std::move(part->waiter));
  }

  bool add(std::uint64_t serial, Client& client, std::uint64_t id, std::string_view key,
           std::int64_t delta) {
    const auto sum = table_.sum(key, delta);
    if (const auto* why = std::get_if<std::string_view>(&sum)) {
      send(serial, client, Writer(Message::refused, id).text(*why).finish());
      return true;
    }
    const std::int64_t value = std::get<std::int64_t>(sum);
    if (write_value(serial, client, id, key, std::to_string(value))) {
      send(serial, client, Writer(Message::ok, id).i64(value).finish());
    }
    return true;
  }

  // Answers at once or remembers the waiter; false if its client has too many already.
  bool start_wait(Waiter waiter) {
    const auto found = clients_.find(waiter.client);
    if (found == clients_.end()) return true;
    Client& client = found->second;
    if (const auto value = table_.answer(waiter)) {
      // More than a message holds: the client asks for each.
      const bool fits = value->size() <= kStoreMaxValueBytes;
      if (waiter.wants_value && fits) return send_value(waiter.client, client, waiter.id, *value);
      const Message kind = fits ? Message::ok : Message::missing;
      send(waiter.client, client, Writer(kind, waiter.id).finish());
      return true;
    }
    if (const std::vector<int> lost = membership_.lost(); !lost.empty()) {
      send_lost(waiter.client, client, waiter.id, lost.front());
      return true;
    }
    if (waiter.ends && *waiter.ends != ends_) {
      send_outdated(waiter);
      return true;
    }
    return table_.park(std::move(waiter));
  }

  void send_outdated(const Waiter& waiter) {
    const auto client = clients_.find(waiter.client);
    if (client == clients_.end()) return;
    send(waiter.client, client->second, Writer(Message::outdated, waiter.id).finish());
  }

  void wake_waiters(const std::string& key) {
    for (Waiter& waiter : table_.take(key)) start_wait(std::move(waiter));
  }

  // Answers request `id`, or tells without one: 0.
  void send_lost(std::uint64_t serial, Client& client, std::uint64_t id, int rank) {
    send(serial, client, Writer(Message::lost, id).u32(static_cast<std::uint32_t>(rank)).finish());
  }

  void declare_lost(int rank) {
    if (!membership_.mark_lost(rank)) return;
    for (auto& [serial, client] : clients_) {
      if (client.introduced) send_lost(serial, client, 0, rank);
    }
    for (const Waiter& waiter : table_.take_all()) {
      const auto client = clients_.find(waiter.client);
      if (client != clients_.end()) send_lost(waiter.client, client->second, waiter.id, rank);
    }
  }

  // A process that ends with code 0 without deregistering is a loss, too: others may wait for it.
  void note_end(int rank) {
    for (auto& [serial, client] : clients_) {
      // Its last messages may be unread.
      if (client.rank == rank) receive(serial, client, INT_MAX);
    }
    if (!membership_.has_deregistered(rank)) return declare_lost(rank);
    const std::string* ended = table_.find(store::kEndedKey);
    const std::string all = (ended == nullptr ? "" : *ended) + std::to_string(rank) + " ";
    if (!table_.write(store::kEndedKey, all)) return;
    ++ends_;
    wake_waiters(store::kEndedKey);
    for (const Waiter& waiter : table_.take_outdated(ends_)) send_outdated(waiter);
  }

  void refuse(std::uint64_t serial, Client& client, std::uint64_t id, std::string_view why) {
    admission_.log_refusal(client.fd.get(), why);
    send(serial, client, Writer(Message::refused, id).text(why).finish());
    dead_.insert(serial);
  }

  void send(std::uint64_t serial, Client& client, const std::string& message) {
    settle(serial, client, client.send(message));
  }

  bool send_value(std::uint64_t serial, Client& client, std::uint64_t id, std::string_view value) {
    settle(serial, client, client.send_value(Message::ok, id, value));
    return true;
  }

  void flush(std::uint64_t serial, Client& client) {
    client.flush();
    settle(serial, client, true);
  }

  // Watches for room for the rest of what is sent, which is dropped with its client if it is too
  // much.
  void settle(std::uint64_t serial, Client& client, bool fits) {
    if (!fits) dead_.insert(serial);
    const bool rest = !client.unsent.empty();
    if (rest != client.wants_write) {
      client.wants_write = rest;
      watch(EPOLL_CTL_MOD, client.fd.get(), serial, rest ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
  }

  void drop_dead_clients() {
    // Telling the others of a loss may find more dead clients.
    while (!dead_.empty()) {
      const std::uint64_t serial = *dead_.begin();
      dead_.erase(dead_.begin());
      const auto found = clients_.find(serial);
      if (found == clients_.end()) continue;
      table_.forget(serial, 0);
      admission_.remove(serial);
      const int rank = found->second.rank;
      const bool lost = rank >= 0 && !found->second.has_deregistered;
      clients_.erase(found);
      if (rank >= 0) membership_.disconnect(rank);
      if (lost) declare_lost(rank);
      if (deaf_) listen_again();
    }
  }

  const pid_t owner_ = getpid();
  SocketAddress address_;
  std::string text_;
  UniqueFd listener_;
  UniqueFd poll_;
  store::Reports reports_;

  // Of the serving thread alone.
  std::map<std::uint64_t, Client> clients_;
  std::set<std::uint64_t> dead_;
  store::Admission admission_;
  store::Table table_;
  std::uint32_t ends_ = 0;  // the numbers in kEndedKey
  std::uint64_t next_serial_ = kFirstClient;
  bool deaf_ = false;
  std::optional<std::chrono::steady_clock::time_point> listens_again_;  // if it is deaf

  std::atomic<std::uint64_t> requests_{0};
  store::JobMembership membership_;

  std::thread thread_;
};

StoreServer::StoreServer(const StoreServerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
StoreServer::~StoreServer() = default;
const std::string& StoreServer::address() const { return impl_->address(); }
void StoreServer::mark_lost(int rank) { impl_->report(rank, false); }
void StoreServer::mark_ended(int rank) { impl_->report(rank, true); }
std::uint64_t StoreServer::request_count() const { return impl_->requests(); }
std::vector<int> StoreServer::lost_ranks() const { return impl_->membership().lost(); }
std::vector<int> StoreServer::connected_ranks() const { return impl_->membership().connected(); }

}  // namespace gantry
