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
#include "job/store/admission.hpp"

namespace gantry::store {

using std::chrono::milliseconds;

namespace {

using Clock = std::chrono::steady_clock;

constexpr milliseconds kForever{1'000'000'000};
constexpr std::size_t kMostQuoted = 200;

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
  if (address_.kind == SocketAddress::Kind::tcp) require_message_tags("StoreClient");
  auto pause = milliseconds(2);
  while (!try_introduce(deadline)) {
    if (Clock::now() + pause >= deadline) {
      if (!unproven_.empty()) {
        throw UnprovenServerError(
            fmt::format("StoreClient: expected the job's store at {} to answer within {} ms, but "
                        "{}",
                        address_.str(), options_.connect_timeout.count(), unproven_),
            unproven_);
      }
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
    send_all(Writer(Message::deregister, 0).finish(), deadline_after(milliseconds(200)));
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
  if (is_forged_.load()) {
    return PeerLostError(
        fmt::format("Store::{}: a message of the job's store at {} was changed on its way", op,
                    address_.str()));
  }
  return PeerLostError(
      fmt::format("Store::{}: the job's store at {} is gone: the process that served it has ended",
                  op, address_.str()));
}

bool ClientConnection::try_introduce(Clock::time_point deadline) {
  return connect_to_any(address_, deadline, [&](UniqueFd& fd, Clock::time_point until) {
    if (!peer_is_trusted(fd.get(), address_)) {
      throw PeerLostError(
          fmt::format("StoreClient: the store at {} belongs to another user", address_.str()));
    }
    fd_ = std::move(fd);
    splitter_ = {};
    seal_.reset();
    return introduce(until);
  });
}

bool ClientConnection::introduce(Clock::time_point deadline) {
  if (address_.kind == SocketAddress::Kind::tcp) {
    if (!exchange_proofs(deadline)) return false;
  } else {
    const std::string hello = Writer(Message::hello, next_id())
                                  .u32(kMagic)
                                  .i64(options_.rank)
                                  .text(options_.token)
                                  .finish();
    if (!send_all(hello, deadline)) return false;
  }
  const std::optional<std::string> body = await_message(deadline);
  if (!body) return false;
  Reader reply(*body);
  if (reply.kind() != Message::ok) {
    throw PeerLostError(fmt::format("StoreClient: the store at {} turned rank {} away: {}",
                                    address_.str(), options_.rank,
                                    escape_control_characters(reply.text())));
  }
  connected_.store(true);
  return true;
}

bool ClientConnection::exchange_proofs(Clock::time_point deadline) {
  // A process that holds the connection and says nothing must not take the time of the store, which
  // may come later. A store that is slow to answer gets more time at each attempt.
  deadline = std::min(deadline, Clock::now() + proof_time_);
  proof_time_ *= 2;
  Nonces nonces;
  nonces.client = random_key();
  if (!send_all(Writer(Message::hello, next_id()).u32(kMagic).text(text_of(nonces.client)).finish(),
                deadline)) {
    return false;
  }
  const std::optional<std::string> body = await_message(deadline);
  if (!body) {
    return reject_server(fmt::format("{} in time", splitter_.broken()
                                                       ? "sent no message of the store's protocol"
                                                       : "did not prove that it has the token"));
  }
  Reader reply(*body);
  if (reply.kind() == Message::refused) {
    // Any process can say so.
    return reject_server(
        fmt::format("refused without a proof that it has the token ('{}')",
                    escape_control_characters(reply.text().substr(0, kMostQuoted))));
  }
  const std::string_view nonce = reply.text();
  const std::string_view proof = reply.text();
  if (reply.kind() != Message::challenge || !reply.finished() ||
      nonce.size() != nonces.server.size()) {
    return reject_server("sent no message of the store's protocol");
  }
  std::copy(nonce.begin(), nonce.end(), nonces.server.begin());
  if (!equal_secrets(text_of(server_proof(options_.token, nonces)), proof)) {
    return reject_server("does not have this token");
  }
  unproven_.clear();
  const Key own = client_proof(options_.token, nonces, options_.rank);
  const bool is_sent = send_all(
      Writer(Message::prove, next_id()).i64(options_.rank).text(text_of(own)).finish(), deadline);
  seal_.emplace(options_.token, nonces, options_.rank, Seal::Side::client);
  return is_sent;
}

bool ClientConnection::reject_server(std::string_view why) {
  unproven_ = fmt::format(
      "the process at {} {}; another process may have the port, or GANTRY_RDZV_TOKEN differs "
      "between the ranks",
      peer_text(fd_.get()), why);
  return false;
}

std::optional<std::string> ClientConnection::await_message(Clock::time_point deadline) {
  std::array<char, 4096> chunk;
  for (;;) {
    if (auto body = splitter_.next(kMaxMessageBytes)) {
      if (seal_ && !seal_->open(*body)) return std::nullopt;
      return std::string(*body);
    }
    if (splitter_.broken() || !await_ready(fd_.get(), POLLIN, deadline)) return std::nullopt;
    const ssize_t got = recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return std::nullopt;
    splitter_.append({chunk.data(), static_cast<std::size_t>(got)});
  }
}

bool ClientConnection::send_all(std::string sent, Clock::time_point deadline) noexcept {
  const std::lock_guard lock(send_mutex_);
  try {
    if (seal_) {
      const MessageTag tag = seal_->close(sent, {});
      sent.append(reinterpret_cast<const char*>(tag.data()), tag.size());
    }
  } catch (const std::exception&) {  // out of host memory
    shutdown(fd_.get(), SHUT_RDWR);
    return false;
  }
  std::string_view message = sent;
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
    case Message::prove:
    case Message::challenge:
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
  std::string message = request.message.finish();
  // A request that does not leave within its time is as lost as one without an answer.
  const auto leaves_by = std::max(deadline, deadline_after(options_.call_timeout));
  const bool sent = send_all(std::move(message), leaves_by);
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
  while (auto body = splitter_.next(kMaxMessageBytes)) {
    if (seal_ && !seal_->open(*body)) {
      is_forged_.store(true);
      shutdown(fd_.get(), SHUT_RDWR);
      return false;
    }
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
