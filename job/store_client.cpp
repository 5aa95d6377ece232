#include <gantry/extend/store.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include <gantry/core/error.hpp>

#include "core/files/socket.hpp"
#include "core/processes/background_thread.hpp"
#include "core/processes/suspend_aware_timeout.hpp"
#include "core/text/escaped_text.hpp"
#include "job/store_messages.hpp"

namespace gantry {

using std::chrono::milliseconds;
using store::Message;
using store::Reader;
using store::Writer;
using Clock = std::chrono::steady_clock;

namespace {

constexpr milliseconds kForever{1'000'000'000};

// A deadline `timeout` from now that does not overflow for "forever".
Clock::time_point deadline_after(milliseconds timeout) {
  return Clock::now() + std::clamp(timeout, milliseconds(0), kForever);
}

void check_key(const char* op, std::string_view key) {
  if (key.empty() || key.size() > kStoreMaxKeyBytes) {
    throw InvalidArgument(fmt::format("Store::{}: expected a key of 1 to {} bytes, but got {}", op,
                                      kStoreMaxKeyBytes, key.size()));
  }
}

void check_value(const char* op, std::string_view value) {
  if (value.size() > kStoreMaxValueBytes) {
    throw InvalidArgument(fmt::format("Store::{}: expected a value of at most {} bytes, but got {}",
                                      op, kStoreMaxValueBytes, value.size()));
  }
}

void check_members(const char* op, std::string_view prefix, int count) {
  const std::string last = fmt::format("{}/{}", prefix, count);
  check_key(op, prefix.empty() ? prefix : std::string_view(last));
  if (count < 1) {
    throw InvalidArgument(
        fmt::format("Store::{}: expected a count of at least 1, but got {}", op, count));
  }
}

// The values in the answer to a gather or an exchange.
std::optional<std::vector<std::string>> values_of(const char* op, Message kind,
                                                  std::string_view body, int count) {
  if (kind == Message::missing) return std::nullopt;
  std::vector<std::string> values;
  values.reserve(static_cast<std::size_t>(count));
  Reader reply(body);
  ByteReader fields(reply.text());
  for (int i = 0; i < count; ++i) values.emplace_back(fields.text());
  if (!fields.finished()) {
    throw Error(fmt::format("Store::{}: the store sent a malformed message", op));
  }
  return values;
}

}  // namespace

class StoreClient::Impl {
 public:
  explicit Impl(const StoreClientOptions& options)
      : options_(options), address_(parse_socket_address(options.address)) {
    wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_) throw Error(fmt::format("store: {}", std::strerror(errno)));
    const auto deadline = deadline_after(options.connect_timeout);
    auto pause = milliseconds(2);
    while (!try_introduce(deadline)) {
      if (Clock::now() + pause >= deadline) {
        throw TimeoutError(fmt::format(
            "StoreClient: expected the job's store at {} to answer within {} ms, but got no answer",
            address_.str(), options.connect_timeout.count()));
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(50));
    }
    thread_ = start_background_thread("gantry-job", [this] { receive(); });
  }

  ~Impl() {
    if (is_mine() && connected_.load()) {
      const std::string message = Writer(Message::deregister, 0).finish();
      send_all(message, deadline_after(milliseconds(200)));
    }
    close_down();
  }

  void close_down() noexcept {
    if (!is_mine()) {
      abandon_after_fork(std::move(thread_));  // as the connection is
      return;
    }
    stop_.store(true);
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
    if (thread_.joinable()) thread_.join();
    shutdown(fd_.get(), SHUT_RDWR);
  }

  // Sends a request and waits for its answer, of which the kind is ok or missing.
  std::string call(const char* op, std::string_view what, Writer&& request, std::uint64_t id,
                   milliseconds timeout, bool waits, Message* kind) {
    if (!is_mine()) {
      throw ForkError(
          fmt::format("Store::{}: expected the process that connected, but got a child of its "
                      "fork; it needs a StoreClient of its own",
                      op));
    }
    const auto deadline = deadline_after(timeout);
    Pending pending;
    {
      const std::lock_guard lock(mutex_);
      if (!connected_.load()) throw gone(op);
      pending_[id] = &pending;
    }
    const std::string message = std::move(request).finish();
    // A request that does not leave within its time is as lost as one without an answer.
    const auto leaves_by = std::max(deadline, deadline_after(options_.call_timeout));
    const bool sent = send_all(message, leaves_by);
    std::unique_lock lock(mutex_);
    SuspendAwareTimeout countdown(std::clamp(timeout, milliseconds(0), kForever));
    bool answered = false;
    while (sent && !answered && !countdown.has_expired()) {
      answered = arrived_.wait_for(lock, countdown.next_wait(),
                                   [&] { return pending.done || !connected_.load(); });
    }
    pending_.erase(id);
    if (!pending.done) {
      // A broken connection, of which the thread that receives may not have heard yet.
      const bool broke = !sent && Clock::now() < leaves_by;
      if (broke || !connected_.load()) throw gone(op);
      lock.unlock();
      if (!answered && waits)
        send_all(Writer(Message::cancel, id).finish(), deadline_after(milliseconds(1000)));
      throw TimeoutError(fmt::format(
          "Store::{}: expected {} within {} ms, but got no answer (rank {}, store at {})", op, what,
          timeout.count(), options_.rank, address_.str()));
    }
    lock.unlock();
    Reader reply(pending.body);
    switch (reply.kind()) {
      case Message::ok:
      case Message::missing:
        *kind = reply.kind();
        return std::move(pending.body);
      case Message::lost: {
        const int rank = static_cast<int>(reply.u32());
        throw PeerLostError(
            fmt::format("Store::{}: expected {}, but rank {} left the job", op, what, rank), rank);
      }
      case Message::outdated:
        throw TimeoutError(fmt::format(
            "Store::{}: expected {}, but a rank has ended meanwhile (rank {}, store at {})", op,
            what, options_.rank, address_.str()));
      case Message::refused:
        throw InvalidArgument(fmt::format("Store::{}: expected {}, but {}", op, what,
                                          escape_control_characters(reply.text())));
      case Message::hello:
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
        break;
    }
    throw Error(
        fmt::format("Store::{}: the store at {} sent a malformed message", op, address_.str()));
  }

  std::uint64_t next_id() { return next_id_.fetch_add(1); }
  int lost_rank() const { return lost_rank_.load(); }
  std::vector<int> lost_ranks() const {
    const std::lock_guard lock(mutex_);
    return lost_ranks_;
  }
  bool connected() const { return connected_.load(); }
  milliseconds call_timeout() const { return options_.call_timeout; }

 private:
  struct Pending {
    std::string body;
    bool done = false;
  };

  PeerLostError gone(const char* op) const {
    return PeerLostError(fmt::format(
        "Store::{}: the job's store at {} is gone: the process that served it has ended", op,
        address_.str()));
  }

  // False in a child of a fork, where a word of ours would be taken for the parent's.
  bool is_mine() const noexcept { return getpid() == owner_; }

  // One attempt to connect and be let in; false if it is worth another.
  bool try_introduce(Clock::time_point deadline) {
    auto fd = connect_to(address_, deadline);
    if (!fd) return false;
    if (!peer_is_trusted(fd->get(), address_)) {
      throw PeerLostError(
          fmt::format("StoreClient: the store at {} belongs to another user", address_.str()));
    }
    fd_ = std::move(*fd);
    splitter_ = {};
    const std::string hello = Writer(Message::hello, next_id())
                                  .u32(store::kMagic)
                                  .i64(options_.rank)
                                  .text(options_.token)
                                  .finish();
    if (!send_all(hello, deadline)) return false;
    std::array<char, 4096> chunk;
    for (;;) {
      if (const auto body = splitter_.next(store::kMaxMessageBytes)) {
        Reader reply(*body);
        if (reply.kind() == Message::ok) break;
        throw PeerLostError(fmt::format("StoreClient: the store at {} turned rank {} away: {}",
                                        address_.str(), options_.rank,
                                        escape_control_characters(reply.text())));
      }
      pollfd entry{fd_.get(), POLLIN, 0};
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
      if (left <= 0) return false;
      poll(&entry, 1, static_cast<int>(left));
      const ssize_t got = recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got <= 0) return false;
      splitter_.append({chunk.data(), static_cast<std::size_t>(got)});
    }
    connected_.store(true);
    return true;
  }

  bool send_all(std::string_view message, Clock::time_point deadline) noexcept {
    const std::lock_guard lock(send_mutex_);
    while (!message.empty()) {
      const ssize_t count = ::send(fd_.get(), message.data(), message.size(), MSG_NOSIGNAL);
      if (count >= 0) {
        message.remove_prefix(static_cast<std::size_t>(count));
        continue;
      }
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return false;
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
      pollfd entry{fd_.get(), POLLOUT, 0};
      if (left <= 0 || poll(&entry, 1, static_cast<int>(left)) == 0) {
        // Half a message would garble every later one.
        shutdown(fd_.get(), SHUT_RDWR);
        return false;
      }
    }
    return true;
  }

  void receive() {
    std::array<char, 65536> chunk;
    while (take_messages()) {
      std::array<pollfd, 2> entries{{{fd_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
      if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) break;
      if (stop_.load()) break;
      const ssize_t got = recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got <= 0) break;
      splitter_.append({chunk.data(), static_cast<std::size_t>(got)});
    }
    const std::lock_guard lock(mutex_);
    connected_.store(false);
    arrived_.notify_all();
  }

  // Hands out every complete message; false if the stream makes no sense.
  bool take_messages() {
    while (const auto body = splitter_.next(store::kMaxMessageBytes)) {
      Reader message(*body);
      if (message.id() == 0) {
        if (message.kind() == Message::lost) note_loss(static_cast<int>(message.u32()));
        continue;
      }
      const std::lock_guard lock(mutex_);
      const auto found = pending_.find(message.id());
      if (found == pending_.end()) continue;  // gave up waiting
      found->second->body = *body;
      found->second->done = true;
      arrived_.notify_all();
    }
    return !splitter_.broken();
  }

  void note_loss(int rank) {
    const std::lock_guard lock(mutex_);
    lost_ranks_.push_back(rank);
    lost_rank_.store(lost_ranks_.front());
  }

  const pid_t owner_ = getpid();
  StoreClientOptions options_;
  SocketAddress address_;
  UniqueFd fd_;
  UniqueFd wake_;
  store::Splitter splitter_;
  std::mutex send_mutex_;
  std::atomic<std::uint64_t> next_id_{1};
  std::atomic<int> lost_rank_{-1};
  std::atomic<bool> connected_{false};
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;  // guards pending_, the answers in it, and lost_ranks_
  std::condition_variable arrived_;
  std::map<std::uint64_t, Pending*> pending_;
  std::vector<int> lost_ranks_;

  std::thread thread_;
};

StoreClient::StoreClient(const StoreClientOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
StoreClient::~StoreClient() = default;

int StoreClient::lost_rank() const noexcept { return impl_->lost_rank(); }
std::vector<int> StoreClient::lost_ranks() const { return impl_->lost_ranks(); }
bool StoreClient::connected() const noexcept { return impl_->connected(); }
void StoreClient::abandon() noexcept { impl_->close_down(); }

void StoreClient::set(std::string_view key, std::string_view value) {
  check_key("set", key);
  check_value("set", value);
  const auto id = impl_->next_id();
  Message kind;
  impl_->call("set", fmt::format("key '{}' to be written", key),
              std::move(Writer(Message::set, id).text(key).text(value)), id, impl_->call_timeout(),
              false, &kind);
}

std::string StoreClient::get(std::string_view key, milliseconds timeout) {
  check_key("get", key);
  const auto id = impl_->next_id();
  Message kind;
  const std::string body =
      impl_->call("get", fmt::format("key '{}'", key),
                  std::move(Writer(Message::get, id).text(key)), id, timeout, true, &kind);
  return std::string(Reader(body).text());
}

std::optional<std::vector<std::string>> StoreClient::gather(std::string_view prefix, int count,
                                                            milliseconds timeout,
                                                            std::optional<std::uint32_t> ends) {
  check_members("gather", prefix, count);
  const auto id = impl_->next_id();
  Message kind;
  const std::string body = impl_->call("gather", fmt::format("{} keys of '{}'", count, prefix),
                                       std::move(Writer(Message::gather, id)
                                                     .text(prefix)
                                                     .u32(static_cast<std::uint32_t>(count))
                                                     .i64(ends ? std::int64_t{*ends} : -1)),
                                       id, timeout, true, &kind);
  return values_of("gather", kind, body, count);
}

std::optional<std::vector<std::string>> StoreClient::exchange(std::string_view prefix, int count,
                                                              int number, std::string_view value,
                                                              milliseconds timeout,
                                                              std::optional<std::uint32_t> ends,
                                                              std::string_view outdated) {
  check_members("exchange", prefix, count);
  if (number < 0 || number >= count) {
    throw InvalidArgument(fmt::format("Store::exchange: expected a number from 0 to {}, but got {}",
                                      count - 1, number));
  }
  check_value("exchange", value);
  if (!outdated.empty()) check_key("exchange", outdated);
  const auto id = impl_->next_id();
  Message kind;
  const std::string body = impl_->call("exchange", fmt::format("{} keys of '{}'", count, prefix),
                                       std::move(Writer(Message::exchange, id)
                                                     .text(prefix)
                                                     .u32(static_cast<std::uint32_t>(count))
                                                     .i64(ends ? std::int64_t{*ends} : -1)
                                                     .u32(static_cast<std::uint32_t>(number))
                                                     .text(value)
                                                     .text(outdated)),
                                       id, timeout, true, &kind);
  return values_of("exchange", kind, body, count);
}

std::optional<std::string> StoreClient::try_get(std::string_view key) {
  check_key("try_get", key);
  const auto id = impl_->next_id();
  Message kind;
  const std::string body = impl_->call("try_get", fmt::format("an answer about key '{}'", key),
                                       std::move(Writer(Message::try_get, id).text(key)), id,
                                       impl_->call_timeout(), false, &kind);
  if (kind == Message::missing) return std::nullopt;
  return std::string(Reader(body).text());
}

std::int64_t StoreClient::add(std::string_view key, std::int64_t delta) {
  check_key("add", key);
  const auto id = impl_->next_id();
  Message kind;
  const std::string body = impl_->call("add", fmt::format("a number under key '{}'", key),
                                       std::move(Writer(Message::add, id).text(key).i64(delta)), id,
                                       impl_->call_timeout(), false, &kind);
  return Reader(body).i64();
}

std::string StoreClient::compare_and_set(std::string_view key, std::string_view expected,
                                         std::string_view desired) {
  check_key("compare_and_set", key);
  check_value("compare_and_set", expected);
  check_value("compare_and_set", desired);
  const auto id = impl_->next_id();
  Message kind;
  const std::string body = impl_->call(
      "compare_and_set", fmt::format("an answer about key '{}'", key),
      std::move(Writer(Message::compare_and_set, id).text(key).text(expected).text(desired)), id,
      impl_->call_timeout(), false, &kind);
  return std::string(Reader(body).text());
}

bool StoreClient::erase(std::string_view key) {
  check_key("erase", key);
  const auto id = impl_->next_id();
  Message kind;
  impl_->call("erase", fmt::format("key '{}' to be erased", key),
              std::move(Writer(Message::erase, id).text(key)), id, impl_->call_timeout(), false,
              &kind);
  return kind == Message::ok;
}

void StoreClient::wait(std::span<const std::string> keys, milliseconds timeout) {
  std::size_t bytes = 0;
  for (const std::string& key : keys) {
    check_key("wait", key);
    bytes += key.size() + 4;
  }
  if (bytes > kStoreMaxValueBytes) {
    throw InvalidArgument(fmt::format("Store::wait: expected at most {} bytes of keys, but got {}",
                                      kStoreMaxValueBytes, bytes));
  }
  if (keys.empty()) return;
  const auto id = impl_->next_id();
  Writer request(Message::wait, id);
  request.u32(static_cast<std::uint32_t>(keys.size()));
  for (const std::string& key : keys) request.text(key);
  Message kind;
  impl_->call("wait",
              keys.size() == 1 ? fmt::format("key '{}'", keys.front())
                               : fmt::format("{} keys ('{}', …)", keys.size(), keys.front()),
              std::move(request), id, timeout, true, &kind);
}

}  // namespace gantry
