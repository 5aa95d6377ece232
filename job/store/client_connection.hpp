#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>
#include <gantry/extend/unique_fd.hpp>

#include "core/files/socket.hpp"
#include "job/store/handshake.hpp"
#include "job/store/messages.hpp"

namespace gantry::store {

/// A process answers at the store's address, and does not know the job's token.
class UnprovenServerError final : public TimeoutError {
 public:
  UnprovenServerError(const std::string& message, std::string reason)
      : TimeoutError(message), reason_(std::move(reason)) {}
  /// The reason alone: "the process at … has no …".
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  std::string reason_;
};

/// A request, and what its caller waits for.
struct Request {
  const char* op;           ///< in errors: "Store::op"
  std::string expectation;  ///< in errors: "expected …"
  Writer message;           ///< its id is `id`
  std::uint64_t id;
  std::chrono::milliseconds timeout;
  bool waits = false;  ///< the server may answer late: a caller that gives up cancels it
};

/// An answer of kind ok or missing.
struct Reply {
  Message kind;
  std::string body;
};

/// A StoreClient's connection to its server. A thread receives the answers.
///
/// Thread safety: any thread.
class ClientConnection {
 public:
  /// Connects and proves that it has the token. The host blocks, at most `options.connect_timeout`.
  /// Throws: TimeoutError without an answer in time, an UnprovenServerError if others answered;
  /// PeerLostError if the server turns this client away.
  explicit ClientConnection(const StoreClientOptions& options);
  /// Deregisters the rank.
  ~ClientConnection();
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  /// Closes the connection. Without deregistration, the server takes the rank for lost.
  void close() noexcept;

  /// Number for a request.
  [[nodiscard]] std::uint64_t next_id() { return next_id_.fetch_add(1); }
  /// Sends a request and waits for its answer.
  /// Throws: ForkError in a child of a fork; TimeoutError; PeerLostError if the server or, while it
  /// waits, a rank is gone; InvalidArgument if the server refuses.
  [[nodiscard]] Reply call(Request request);

  /// The rank that was lost first; -1: none.
  [[nodiscard]] int lost_rank() const noexcept { return lost_rank_.load(); }
  [[nodiscard]] std::vector<int> lost_ranks() const;
  [[nodiscard]] bool connected() const noexcept { return connected_.load(); }
  [[nodiscard]] bool is_forged() const noexcept { return is_forged_.load(); }
  [[nodiscard]] std::chrono::milliseconds call_timeout() const { return options_.call_timeout; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Pending {
    std::string body;
    bool done = false;
  };

  // False in a child of a fork, where a word of ours would be taken for the parent's.
  bool is_mine() const noexcept { return getpid() == owner_; }
  PeerLostError gone(const char* op) const;
  // One attempt to connect and be let in; false if it is worth another.
  bool try_introduce(Clock::time_point deadline);
  // The same over fd_, which is connected.
  bool introduce(Clock::time_point deadline);
  // Proves to each other that both sides know the token; false if that fails.
  bool exchange_proofs(Clock::time_point deadline);
  // Notes why the process at the other end is not the job's store; false.
  bool reject_server(std::string_view why);
  // Receives a message during the introduction; none at the deadline or at the connection's end.
  std::optional<std::string> await_message(Clock::time_point deadline);
  bool send_all(std::string message, Clock::time_point deadline) noexcept;
  // Sends the request and returns the body of its answer.
  std::string await_answer(Request& request);
  void receive();
  // Hands out every complete message; false if the stream makes no sense.
  bool take_messages();
  void note_loss(int rank);

  const pid_t owner_ = getpid();
  StoreClientOptions options_;
  SocketAddress address_;
  UniqueFd fd_;
  UniqueFd wake_;
  Splitter splitter_;
  std::string unproven_;                        // why a process that answered is not the store
  std::chrono::milliseconds proof_time_{3000};  // that the next attempt gives it
  std::mutex send_mutex_;                       // guards the outgoing part of seal_
  std::optional<Seal> seal_;                    // of a TCP connection
  std::atomic<std::uint64_t> next_id_{1};
  std::atomic<int> lost_rank_{-1};
  std::atomic<bool> connected_{false};
  std::atomic<bool> is_forged_{false};  // a message came that the server did not send
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;  // guards pending_, the answers in it, and lost_ranks_
  std::condition_variable arrived_;
  std::map<std::uint64_t, Pending*> pending_;
  std::vector<int> lost_ranks_;

  std::thread thread_;
};

}  // namespace gantry::store
