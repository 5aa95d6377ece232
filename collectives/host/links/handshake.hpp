#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap/group_timeout.hpp"
#include "collectives/host/links/addresses.hpp"
#include "core/authentication/keys.hpp"
#include "core/authentication/message_tags.hpp"

namespace gantry {

// The operations between machines that a rank's device has begun and finished.
struct RankProgress {
  std::uint64_t begun = 0;
  std::uint64_t finished = 0;
};

// A message of a rank on a connection: that it uses this one, and at last why it stops. Probes, and
// reports that a rank has no NCCL, may come in between.
struct ControlMessage {
  enum class Kind : std::int32_t {
    none,
    left,
    lost,
    late,
    aborted,
    confirmed,
    probe,    // the receiver replies with `alive` and the same token
    alive,    // has the progress of the sender
    no_nccl,  // `failed_rank` could not start NCCL
  };
  Kind kind = Kind::none;
  std::int32_t failed_rank = -1;
  std::uint64_t token = 0;
  RankProgress progress = {};
  // Of `late`, which ranks pass on: the rank that waited, and what set its deadline.
  std::int32_t author = -1;
  DeadlineSource source = DeadlineSource::variable;

  // Says that `rank` is late, by the clock of `author`.
  [[nodiscard]] static ControlMessage of_late(int rank, int author, DeadlineSource source) {
    return {.kind = Kind::late, .failed_rank = rank, .author = author, .source = source};
  }
};

struct Hello;
struct Answer;

// Note [Authenticated links]
// Any process can connect to a rank's port, take the port of a rank that has ended, or stand
// between two ranks. So all ranks of a group derive a key from the job's secret and from the
// addresses that all ranks published, which contain random cookies. A rank that connects sends a
// nonce with a proof under this key, the other rank answers so, too, and both proofs name both
// ranks. The key never crosses the network. A rank accepts each nonce once, so a recorded greeting
// is worth nothing. Later messages have tags: see Note [Authenticated messages]. Without a secret,
// in jobs of one machine or of MPI, the cookies are one: they come by a unix socket, shared memory
// or MPI.

// The key of a group, from the job's secret and the texts of all ranks' addresses.
Key group_key(const Key& job_key, const std::vector<std::string>& addresses);

// The side of a connection between ranks.
enum class LinkSide : std::uint8_t { dialler, acceptor };

// Whether the messages of a data connection are encrypted.
enum class Secrecy : std::uint8_t { open, encrypted };

// The tags of a data connection's messages, of one side.
struct DataTags {
  MessageTags outgoing;
  MessageTags incoming;
  Secrecy secrecy = Secrecy::open;
};

// The confirmation of a connection, or a message on a control connection.
struct LastWord {
  ControlMessage message;
  MessageTag tag{};
};

// The key of one connection: it depends on the group, both ranks, the purpose and the dialler's
// nonce.
class ConnectionKey {
 public:
  ConnectionKey() = default;
  ConnectionKey(const Key& group, const Hello& hello);

  // Proofs that the sender knows the key.
  Key proof_of(const Hello& hello) const;
  Key proof_of(const Answer& answer) const;
  // `side` sends the message.
  LastWord last_word(LinkSide side, const ControlMessage& message) const;
  // The tags of `side`, with the acceptor's nonce.
  DataTags data_tags(LinkSide side, const Key& acceptor_nonce, Secrecy secrecy) const;

 private:
  Key key_{};
};

// True if `given` is `proof`.
bool is_proof(const Key& proof, const Key& given) noexcept;
// True if the tag of `word` belongs to its message from `side`.
bool is_authentic(const ConnectionKey& key, LinkSide side, const LastWord& word) noexcept;

// Note [Two connections]
// Data may stall for as long as a rank computes, and TCP's timers cannot distinguish a full window
// from a dead machine. So two ranks that exchange data have a second connection, the control
// connection. Its keepalives detect an unreachable machine within seconds, even if the process
// there is busy or stopped. Its end signals the end of the process. A rank that fails names the
// failed rank there, whatever the state of its data connections: that is the last message.
//
// A probe on the control connection finds processes that do not run. The thread of the links
// replies, also while the program computes. The reply has the number of the probe, so a recorded
// one is worth nothing.
//
// Note [Confirmed connections]
// A rank that connects gives an address up that answers late, and tries the next one. The other
// rank may accept the first connection after that. So an answer is confirmed: only then does the
// other rank use the connection, and takes its end for the end of a process.
enum class Purpose : std::int32_t { control, data };
inline constexpr std::size_t kPurposes = 2;

// The first bytes on a connection: see Note [Authenticated links].
struct Hello {
  std::array<char, 8> magic{'g', 'a', 'n', 't', 'r', 'y', 'L', '6'};
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
  // Takes one step. Nothing if another one may follow at once.
  std::optional<Outcome> advance();
  // Goes on with the next address, after a pause or at once; fails if none is left.
  std::optional<Outcome> leave_address(int code);
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
