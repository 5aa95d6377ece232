#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>

#include "core/authentication/keys.hpp"
#include "core/files/socket.hpp"
#include "core/processes/background_thread.hpp"
#include "job/store/connections.hpp"
#include "job/store/handshake.hpp"
#include "job/store/membership.hpp"
#include "job/store/messages.hpp"
#include "job/store/reports.hpp"
#include "job/store/table.hpp"
#include "job/store/waiter.hpp"

namespace gantry {

using store::Connection;
using store::Message;
using store::Reader;
using store::Waiter;
using store::Writer;

class StoreServer::Impl final : private store::Connections::Handler {
 public:
  explicit Impl(const StoreServerOptions& options)
      : connections_(parse_socket_address(options.address), options.token, reports_.descriptor(),
                     *this),
        address_(connections_.address().str()) {
    thread_ = start_background_thread("gantry-store", [this] { connections_.run(); });
  }

  ~Impl() {
    if (getpid() != owner_) {  // a child of a fork: all of this is the parent's
      abandon_after_fork(std::move(thread_));
      return;
    }
    reports_.stop();
    thread_.join();
    table_.verify();
    table_.verify_clients([this](std::uint64_t client) { return connections_.find(client); });
    const SocketAddress& address = connections_.address();
    if (address.kind == SocketAddress::Kind::unix_path) unlink(address.name.c_str());
  }

  const std::string& address() const { return address_; }

  void report(int rank, bool in_order) { reports_.add({rank, in_order}); }

  const store::JobMembership& membership() const { return membership_; }
  std::uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }

 private:
  // Handles what other threads asked for.
  bool wake() override {
    const std::optional<std::vector<store::Report>> reports = reports_.take();
    if (!reports) return false;
    for (const auto& [rank, in_order] : *reports) {
      in_order ? note_end(rank) : declare_lost(rank);
    }
    return true;
  }

  void closed(const Connection& client) override {
    table_.forget(client.serial, 0);
    if (client.rank < 0) return;
    membership_.disconnect(client.rank);
    if (!client.has_deregistered) declare_lost(client.rank);
  }

  bool handle(Connection& client, Reader& in) override {
    if (!client.introduced) return introduce(client, in);
    requests_.fetch_add(1, std::memory_order_relaxed);
    switch (in.kind()) {
      case Message::deregister:
        client.has_deregistered = true;
        membership_.deregister(client.rank);
        connections_.close(client);
        return in.finished();
      case Message::set: {
        const std::string_view key = in.text();
        const std::string_view value = in.text();
        if (!in.finished() || !store::is_valid_entry(key, value)) return false;
        if (!write_value(client, in.id(), key, value)) return true;
        send(client, Writer(Message::ok, in.id()).finish());
        return true;
      }
      case Message::get:
      case Message::wait:
      case Message::gather: {
        std::optional<Waiter> waiter = store::read_waiter(client.serial, in);
        return waiter && start_wait(client, std::move(*waiter));
      }
      case Message::exchange:
        return exchange(client, in);
      case Message::try_get: {
        const std::string_view key = in.text();
        if (!in.finished()) return false;
        const std::string* value = table_.find(key);
        if (value != nullptr) {
          connections_.send_value(client, in.id(), *value);
        } else {
          send(client, Writer(Message::missing, in.id()).finish());
        }
        return true;
      }
      case Message::add: {
        const std::string_view key = in.text();
        const std::int64_t delta = in.i64();
        return in.finished() && store::is_valid_entry(key, {}) && add(client, in.id(), key, delta);
      }
      case Message::compare_and_set: {
        const std::string_view key = in.text();
        const std::string_view expected = in.text();
        const std::string_view desired = in.text();
        if (!in.finished() || !store::is_valid_entry(key, desired)) return false;
        const std::string* value = table_.find(key);
        const std::string current = value == nullptr ? std::string() : *value;
        const bool equal = current == expected;
        if (equal && !write_value(client, in.id(), key, desired)) return true;
        send(client, Writer(Message::ok, in.id()).text(equal ? desired : current).finish());
        return true;
      }
      case Message::erase: {
        const std::string_view key = in.text();
        if (!in.finished()) return false;
        const bool there = table_.erase(key);
        send(client, Writer(there ? Message::ok : Message::missing, in.id()).finish());
        return true;
      }
      case Message::cancel:
        if (in.id() == 0) return false;
        table_.forget(client.serial, in.id());
        return in.finished();
      case Message::hello:
      case Message::prove:
      case Message::ok:
      case Message::missing:
      case Message::lost:
      case Message::refused:
      case Message::outdated:
      case Message::challenge:
        return false;
    }
    return false;
  }

  bool introduce(Connection& client, Reader& in) {
    switch (in.kind()) {
      case Message::hello:
        if (client.nonces) return false;
        return connections_.admission().is_challenged() ? challenge(client, in)
                                                        : take_token(client, in);
      case Message::prove:
        return client.nonces && take_proof(client, in);
      case Message::deregister:
      case Message::set:
      case Message::get:
      case Message::try_get:
      case Message::add:
      case Message::compare_and_set:
      case Message::erase:
      case Message::wait:
      case Message::cancel:
      case Message::gather:
      case Message::exchange:
      case Message::ok:
      case Message::missing:
      case Message::lost:
      case Message::refused:
      case Message::outdated:
      case Message::challenge:
        return false;
    }
    return false;
  }

  // True if the hello is of this version. A client of another one is told so.
  bool check_version(Connection& client, Reader& in) {
    const std::uint32_t magic = in.u32();
    if (magic != store::kMagic && store::is_magic(magic)) {
      connections_.refuse(client, in.id(), "it speaks another version of the store's protocol");
    }
    return magic == store::kMagic;
  }

  // The server proves itself first: see Note [The handshake of a store].
  bool challenge(Connection& client, Reader& in) {
    if (!check_version(client, in)) return false;
    const std::string_view nonce = in.text();
    store::Nonces nonces;
    if (!in.finished() || nonce.size() != nonces.client.size()) return false;
    std::copy(nonce.begin(), nonce.end(), nonces.client.begin());
    nonces.server = random_key();
    const Key proof = store::server_proof(connections_.admission().token(), nonces);
    client.nonces = nonces;
    send(client, Writer(Message::challenge, in.id())
                     .text(text_of(nonces.server))
                     .text(text_of(proof))
                     .finish());
    return true;
  }

  bool take_proof(Connection& client, Reader& in) {
    const std::int64_t rank = in.i64();
    const std::string_view proof = in.text();
    if (!in.finished() || !is_rank(rank)) return false;
    const std::string& token = connections_.admission().token();
    const store::Nonces nonces = *std::exchange(client.nonces, std::nullopt);
    if (!equal_secrets(text_of(store::client_proof(token, nonces, rank)), proof)) {
      connections_.refuse_late(client, in.id(), "its token is not this job's");
      return true;
    }
    client.seal.emplace(token, nonces, rank, store::Seal::Side::server);
    return admit(client, in.id(), static_cast<int>(rank));
  }

  bool take_token(Connection& client, Reader& in) {
    if (!check_version(client, in)) return false;
    const std::int64_t rank = in.i64();
    const std::string_view token = in.text();
    if (!in.finished() || !is_rank(rank)) return false;
    if (!connections_.admission().accepts(token)) {
      connections_.refuse(client, in.id(), "its token is not this job's");
      return true;
    }
    return admit(client, in.id(), static_cast<int>(rank));
  }

  static bool is_rank(std::int64_t rank) { return rank >= -1 && rank <= store::kMaxRank; }

  // Takes a client that is one of the job's.
  bool admit(Connection& client, std::uint64_t id, int rank) {
    if (rank >= 0 && is_connected(rank)) {
      connections_.refuse(client, id, fmt::format("rank {} is connected already", rank));
      return true;
    }
    connections_.introduce(client);
    client.rank = rank;
    if (client.rank >= 0) membership_.connect(client.rank);
    send(client, Writer(Message::ok, id).finish());
    for (const int lost : membership_.lost()) send_lost(client, 0, lost);
    return true;
  }

  // True if another connection has given `rank`. Its request to deregister may be unread.
  bool is_connected(int rank) {
    return membership_.is_connected(rank) && connections_.read_rest(rank);
  }

  // False, with the client told why, if the store is full.
  bool write_value(Connection& client, std::uint64_t id, std::string_view key,
                   std::string_view value) {
    if (!table_.write(key, value)) {
      send(client, Writer(Message::refused, id)
                       .text(fmt::format("the store holds at most {} bytes", store::kMaxTableBytes))
                       .finish());
      return false;
    }
    wake_waiters(std::string(key));
    return true;
  }

  bool exchange(Connection& client, Reader& in) {
    std::optional<store::Exchange> part = store::read_exchange(client.serial, in);
    if (!part) return false;
    if (!part->outdated.empty()) table_.erase(part->outdated);
    return !write_value(client, in.id(), part->key, part->value) ||
           start_wait(client, std::move(part->waiter));
  }

  bool add(Connection& client, std::uint64_t id, std::string_view key, std::int64_t delta) {
    const auto sum = table_.sum(key, delta);
    if (const auto* why = std::get_if<std::string_view>(&sum)) {
      send(client, Writer(Message::refused, id).text(*why).finish());
      return true;
    }
    const std::int64_t value = std::get<std::int64_t>(sum);
    if (write_value(client, id, key, std::to_string(value))) {
      send(client, Writer(Message::ok, id).i64(value).finish());
    }
    return true;
  }

  // Answers at once or remembers the waiter; false if its client has too many already.
  bool start_wait(Connection& client, Waiter waiter) {
    if (const auto value = table_.answer(waiter)) {
      // More than a message holds: the client asks for each.
      const bool fits = value->size() <= kStoreMaxValueBytes;
      if (waiter.wants_value && fits) {
        connections_.send_value(client, waiter.id, *value);
      } else {
        send(client, Writer(fits ? Message::ok : Message::missing, waiter.id).finish());
      }
      return true;
    }
    if (const std::vector<int> lost = membership_.lost(); !lost.empty()) {
      send_lost(client, waiter.id, lost.front());
      return true;
    }
    if (waiter.ends && *waiter.ends != ends_) {
      send(client, Writer(Message::outdated, waiter.id).finish());
      return true;
    }
    return table_.park(std::move(waiter));
  }

  void wake_waiters(const std::string& key) {
    for (Waiter& waiter : table_.take(key)) {
      Connection* client = connections_.find(waiter.client);
      if (client != nullptr) start_wait(*client, std::move(waiter));
    }
  }

  // Answers request `id`, or tells without one: 0.
  void send_lost(Connection& client, std::uint64_t id, int rank) {
    send(client, Writer(Message::lost, id).u32(static_cast<std::uint32_t>(rank)).finish());
  }

  void declare_lost(int rank) {
    if (!membership_.mark_lost(rank)) return;
    connections_.for_each_introduced([&](Connection& client) { send_lost(client, 0, rank); });
    for (const Waiter& waiter : table_.take_all()) {
      if (Connection* client = connections_.find(waiter.client)) {
        send_lost(*client, waiter.id, rank);
      }
    }
  }

  // A process that ends with code 0 without deregistering is a loss, too: others may wait for it.
  void note_end(int rank) {
    connections_.read_rest(rank);
    if (!membership_.has_deregistered(rank)) return declare_lost(rank);
    const std::string* ended = table_.find(store::kEndedKey);
    const std::string all = (ended == nullptr ? "" : *ended) + std::to_string(rank) + " ";
    if (!table_.write(store::kEndedKey, all)) return;
    ++ends_;
    wake_waiters(store::kEndedKey);
    for (const Waiter& waiter : table_.take_outdated(ends_)) {
      if (Connection* client = connections_.find(waiter.client)) {
        send(*client, Writer(Message::outdated, waiter.id).finish());
      }
    }
  }

  void send(Connection& client, std::string message) {
    connections_.send(client, std::move(message));
  }

  const pid_t owner_ = getpid();
  store::Reports reports_;

  // Of the serving thread alone.
  store::Connections connections_;
  store::Table table_;
  std::uint32_t ends_ = 0;  // the numbers in kEndedKey

  std::string address_;
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
