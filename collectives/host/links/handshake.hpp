#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/host/links/addresses.hpp"
#include "collectives/host/links/connection_keys.hpp"
#include "collectives/host/links/control_message.hpp"

namespace gantry {

// Note [Two connections]
// Data may stall for as long as a rank computes, and TCP's timers cannot distinguish a full window
// from a dead machine. So two ranks that exchange data have a second connection, the control
// connection. Its keepalives detect an unreachable machine within seconds, even if the process
// there is busy or stopped. Its end signals the end of the process. It carries at most one message:
// a rank that fails names the failed rank there, whatever the state of its data connections.
//
// Note [Confirmed connections]
// A rank that connects gives an address up that answers late, and tries the next one. The other
// rank may accept the first connection after that. So an answer is confirmed: only then does the
// other rank use the connection, and takes its end for the end of a process.
enum class Purpose : std::int32_t { control, data };
inline constexpr std::size_t kPurposes = 2;

// The first bytes on a connection: see Note [Authenticated links].
struct Hello {
  std::array<char, 8> magic{'g', 'a', 'n', 't', 'r', 'y', 'L', '4'};
  std::int32_t from = 0;
  std::int32_t to = 0;
  Purpose purpose = Purpose::control;
  std::int32_t reserved = 0;
  Key nonce{};
  Key proof{};
};

// The bytes that answer a Hello.
struct Answer {
  enum class Kind : std::int32_t {
    welcome = 'y',
    crossed = 'c',  // the other rank's own connection of this purpose counts
    ended = 'e',    // the rank stops; `message` is its last control message
  };
  Kind kind = Kind::welcome;
  ControlMessage message;
  Key nonce{};
  Key proof{};
};

// Sets the options of a connection while it is made: an unreachable machine is detected after four
// seconds. Control connections keep them.
void watch_closely(const Socket& socket);
// Sets the options of a data connection.
void wait_patiently(const Socket& socket);

// A non-blocking receive of an object of `T` in as many parts as it arrives in.
template <class T>
class PartialRead {
 public:
  // Returns the object once it is whole. Sets `ended` if it never will be.
  std::optional<T> read(const Socket& socket, bool& ended);

 private:
  std::array<std::byte, sizeof(T)> bytes_{};
  std::size_t got_ = 0;
};

// An attempt to connect to a rank, address by address, that never blocks.
//
// Thread safety: none.
class Dial {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Outcome : std::uint8_t {
    pending,
    connected,  // take() returns the connection
    crossed,    // the attempt continues after a pause, unless the other rank connects
    ended,      // message() says why
    failed,     // problem() says why
  };

  // Gives up at `give_up`, and earlier if every address refuses connections. `hello` needs no
  // nonce: each attempt has its own.
  Dial(const Hello& hello, const Key& group_key, const RankAddress& to,
       const std::string& own_machine, Clock::time_point give_up);

  // Continues as far as possible without waiting.
  Outcome step();
  // The arguments of poll(): a descriptor, −1 for none; its events; the end of the wait.
  int descriptor() const { return phase_ == Phase::paused ? -1 : socket_.get(); }
  short events() const;
  Clock::time_point next_step() const { return next_step_; }

  // Sends the last control message of this rank, if the other rank may accept the connection.
  void send_last(const ControlMessage& message) const noexcept;

  int rank() const { return hello_.to; }
  Purpose purpose() const { return hello_.purpose; }
  Socket take() { return std::move(socket_); }
  const ConnectionKey& key() const { return key_; }
  const Key& acceptor_nonce() const { return answer_.nonce; }
  const ControlMessage& message() const { return answer_.message; }
  std::string problem() const;
  // True if the last problem was that this process may open no further descriptor.
  bool lacks_descriptors() const;

 private:
  enum class Phase : std::uint8_t { paused, connecting, greeted };
  // Begins with the next address; false if that is not possible now.
  bool begin_next();
  bool open_socket(int family);
  Outcome leave_address(int code);
  bool send_word(const ControlMessage& message) const noexcept;
  bool has_connected();

  Hello hello_;
  const Key group_key_;
  ConnectionKey key_;  // of this attempt
  int port_;
  std::vector<std::string> hosts_;
  Clock::time_point give_up_;
  Clock::time_point begin_ = Clock::now();
  std::size_t next_host_ = 0;
  Phase phase_ = Phase::paused;
  Clock::time_point next_step_ = Clock::now();
  Socket socket_;
  PartialRead<Answer> reading_;
  Answer answer_;
  int refusals_ = 0;        // of this round of addresses
  bool is_silent_ = false;  // one of this round accepted and did not answer
  int code_ = 0;            // the last error
};

}  // namespace gantry
