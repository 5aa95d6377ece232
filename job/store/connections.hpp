#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

#include "core/files/socket.hpp"
#include "job/store/admission.hpp"
#include "job/store/connection.hpp"
#include "job/store/messages.hpp"

namespace gantry::store {

/// All connections of a StoreServer: listens, accepts clients, reads their messages and sends what
/// the server answers.
///
/// Thread safety: none; the serving thread owns it.
class Connections {
 public:
  /// The work of a server on its messages.
  class Handler {
   public:
    /// Answers one message. False: no client of ours would send it, so the connection is closed.
    virtual bool handle(Connection& client, Reader& message) = 0;
    /// `client` is closed, and no other call names it.
    virtual void closed(const Connection& client) = 0;
    /// The wake descriptor is readable. False: run() returns.
    virtual bool wake() = 0;

   protected:
    ~Handler() = default;
  };

  /// Listens at `address`. `wake` is a descriptor of the handler.
  /// Throws: InvalidArgument as require_token(); Error if the address cannot be had.
  Connections(const SocketAddress& address, std::string token, int wake, Handler& handler);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  /// The address, with the port that was chosen.
  [[nodiscard]] const SocketAddress& address() const { return address_; }

  /// Serves until the handler's wake() returns false.
  void run();

  /// The connection `serial`; a null pointer if it is closed.
  [[nodiscard]] Connection* find(std::uint64_t serial);
  /// Calls `f(Connection&)` for every client that has introduced itself.
  template <class F>
  void for_each_introduced(F f) {
    for (auto& [serial, client] : clients_) {
      if (client.introduced) f(client);
    }
  }
  /// Handles what clients of `rank` have sent. True if one of them is still connected.
  bool read_rest(int rank);

  /// Whether a client may join, and what it must present.
  [[nodiscard]] const Admission& admission() const { return admission_; }
  /// Notes that `client` has presented the token.
  void introduce(Connection& client);
  /// Sends the reason, which is logged, and closes the connection.
  void refuse(Connection& client, std::uint64_t id, std::string_view why);
  /// As refuse(), after a pause that grows with the failures of the client's address. Other clients
  /// are served meanwhile.
  void refuse_late(Connection& client, std::uint64_t id, std::string_view why);

  void send(Connection& client, std::string message);
  /// As Connection::send_value(), with a reply of kind ok.
  void send_value(Connection& client, std::uint64_t id, std::string_view value);
  /// Closes the connection before run() waits again.
  void close(const Connection& client) { dead_.insert(client.serial); }

 private:
  void watch(int operation, int fd, std::uint64_t tag, std::uint32_t events) const;
  void accept_clients();
  // Makes room by the oldest of more than `kept` connections that have said nothing; a client of
  // ours comes again. True if there is room for another one.
  bool drop_silent_client(std::size_t kept);
  void listen_again();
  void watch_listeners(std::uint32_t events) const;
  // The time that run() may wait: for the next of what it does by itself.
  int wait_ms() const;
  void send_late_refusals();
  // A bounded number of reads, so that one busy client cannot starve the rest.
  void receive(Connection& client, int turns = 16);
  void flush(Connection& client);
  // Watches for room for the rest of what is sent, which is dropped with its client if it is too
  // much.
  void settle(Connection& client, bool fits);
  void drop_dead_clients();
  bool is_dead(const Connection& client) const { return dead_.contains(client.serial); }

  Handler& handler_;
  SocketAddress address_;
  Admission admission_;
  std::vector<UniqueFd> listeners_;
  UniqueFd poll_;
  std::map<std::uint64_t, Connection> clients_;
  std::set<std::uint64_t> dead_;
  struct LateRefusal {
    std::uint64_t client;
    std::uint64_t request;
    std::string why;
  };
  std::multimap<std::chrono::steady_clock::time_point, LateRefusal> late_refusals_;
  std::uint64_t next_serial_;
  bool deaf_ = false;
  std::optional<std::chrono::steady_clock::time_point> listens_again_;  // if it is deaf
};

}  // namespace gantry::store
