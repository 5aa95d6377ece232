#include "job/store/client_connection.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "core/processes/background_thread.hpp"
#include "core/processes/suspend_aware_timeout.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry::store {

using std::chrono::milliseconds;

namespace {

using Clock = std::chrono::steady_clock;

constexpr milliseconds kForever{1'000'000'000};

// A deadline `timeout` from now that does not overflow for "forever".
Clock::time_point deadline_after(milliseconds timeout) {
  return Clock::now() + std::clamp(timeout, milliseconds(0), kForever);
}

milliseconds::rep milliseconds_until(Clock::time_point deadline) {
  return std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
}

}  // namespace

ClientConnection::ClientConnection(const StoreClientOptions& options)
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

ClientConnection::~ClientConnection() {
  if (is_mine() && connected_.load()) {
    const std::string message = Writer(Message::deregister, 0).finish();
    send_all(message, deadline_after(milliseconds(200)));
  }
  close();
}

void ClientConnection::close() noexcept {
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

std::vector<int> ClientConnection::lost_ranks() const {
  const std::lock_guard lock(mutex_);
  return lost_ranks_;
}

PeerLostError ClientConnection::gone(const char* op) const {
  return PeerLostError(
      fmt::format("Store::{}: the job's store at {} is gone: the process that served it has ended",
                  op, address_.str()));
}

bool ClientConnection::try_introduce(Clock::time_point deadline) {
  auto fd = connect_to(address_, deadline);
  if (!fd) return false;
  if (!peer_is_trusted(fd->get(), address_)) {
    throw PeerLostError(
        fmt::format("StoreClient: the store at {} belongs to another user", address_.str()));
  }
  fd_ = std::move(*fd);
  splitter_ = {};
  const std::string hello = Writer(Message::hello, next_id())
                                .u32(kMagic)
                                .i64(options_.rank)
                                .text(options_.token)
                                .finish();
  if (!send_all(hello, deadline)) return false;
  std::array<char, 4096> chunk;
  for (;;) {
    if (const auto body = splitter_.next(kMaxMessageBytes)) {
      Reader reply(*body);
      if (reply.kind() == Message::ok) break;
      throw PeerLostError(fmt::format("StoreClient: the store at {} turned rank {} away: {}",
                                      address_.str(), options_.rank,
                                      escape_control_characters(reply.text())));
    }
    pollfd entry{fd_.get(), POLLIN, 0};
    const auto left = milliseconds_until(deadline);
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

bool ClientConnection::send_all(std::string_view message, Clock::time_point deadline) noexcept {
  const std::lock_guard lock(send_mutex_);
  while (!message.empty()) {
    const ssize_t count = ::send(fd_.get(), message.data(), message.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      message.remove_prefix(static_cast<std::size_t>(count));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    const auto left = milliseconds_until(deadline);
    pollfd entry{fd_.get(), POLLOUT, 0};
    if (left <= 0 || poll(&entry, 1, static_cast<int>(left)) == 0) {
      // Half a message would garble every later one.
      shutdown(fd_.get(), SHUT_RDWR);
      return false;
    }
  }
  return true;
}

Reply ClientConnection::call(Request request) {
  std::string body = await_answer(request);
  const auto& [op, expectation, message, id, timeout, waits] = request;
  Reader reply(body);
  switch (reply.kind()) {
    case Message::ok:
    case Message::missing: {
      const Message kind = reply.kind();
      return {kind, std::move(body)};
    }
    case Message::lost: {
      const int rank = static_cast<int>(reply.u32());
      throw PeerLostError(
          fmt::format("Store::{}: expected {}, but rank {} left the job", op, expectation, rank),
          rank);
    }
    case Message::outdated:
      throw TimeoutError(fmt::format(
          "Store::{}: expected {}, but a rank has ended meanwhile (rank {}, store at {})", op,
          expectation, options_.rank, address_.str()));
    case Message::refused:
      throw InvalidArgument(fmt::format("Store::{}: expected {}, but {}", op, expectation,
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

std::string ClientConnection::await_answer(Request& request) {
  const char* op = request.op;
  if (!is_mine()) {
    throw ForkError(
        fmt::format("Store::{}: expected the process that connected, but got a child of its "
                    "fork; it needs a StoreClient of its own",
                    op));
  }
  const auto deadline = deadline_after(request.timeout);
  Pending pending;
  {
    const std::lock_guard lock(mutex_);
    if (!connected_.load()) throw gone(op);
    pending_[request.id] = &pending;
  }
  const std::string message = request.message.finish();
  // A request that does not leave within its time is as lost as one without an answer.
  const auto leaves_by = std::max(deadline, deadline_after(options_.call_timeout));
  const bool sent = send_all(message, leaves_by);
  std::unique_lock lock(mutex_);
  SuspendAwareTimeout countdown(std::clamp(request.timeout, milliseconds(0), kForever));
  bool answered = false;
  while (sent && !answered && !countdown.has_expired()) {
    answered = arrived_.wait_for(lock, countdown.next_wait(),
                                 [&] { return pending.done || !connected_.load(); });
  }
  pending_.erase(request.id);
  if (pending.done) return std::move(pending.body);
  // A broken connection, of which the thread that receives may not have heard yet.
  const bool broke = !sent && Clock::now() < leaves_by;
  if (broke || !connected_.load()) throw gone(op);
  lock.unlock();
  if (!answered && request.waits) {
    send_all(Writer(Message::cancel, request.id).finish(), deadline_after(milliseconds(1000)));
  }
  throw TimeoutError(
      fmt::format("Store::{}: expected {} within {} ms, but got no answer (rank {}, store at {})",
                  op, request.expectation, request.timeout.count(), options_.rank, address_.str()));
}

void ClientConnection::receive() {
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

bool ClientConnection::take_messages() {
  while (const auto body = splitter_.next(kMaxMessageBytes)) {
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

void ClientConnection::note_loss(int rank) {
  const std::lock_guard lock(mutex_);
  lost_ranks_.push_back(rank);
  lost_rank_.store(lost_ranks_.front());
}

}  // namespace gantry::store
