#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <gantry/core/rendezvous.hpp>

#include "core/byte_queue.hpp"
#include "core/unique_fd.hpp"

// What StoreServer and StoreClient have in common: addresses, sockets and messages.
namespace gantry::store {

/// A parsed address.
struct Address {
  enum class Kind { unix_abstract, unix_path, tcp };
  Kind kind = Kind::unix_abstract;
  std::string name;  ///< socket name or path; host for tcp
  int port = 0;

  [[nodiscard]] std::string str() const;
};

/// Parses "unix:@name", "unix:/path" or "tcp:host:port" ("tcp:[::1]:port"). Throws InvalidArgument.
[[nodiscard]] Address parse_address(std::string_view text);

/// Opens a non-blocking listening socket; fills in the port that was picked. Throws Error.
[[nodiscard]] UniqueFd listen_at(Address& address);
/// Tries once to connect; none if nobody listens there (yet), or the host's name is not known
/// (yet). Of a host's several addresses none gets more than some seconds. Non-blocking socket.
/// Throws Error for failures that waiting does not cure.
[[nodiscard]] std::optional<UniqueFd> connect_to(const Address& address,
                                                 std::chrono::steady_clock::time_point deadline);
/// Waits until `fd` has one of `events` (POLLIN, POLLOUT) or has failed; false at the deadline.
/// Signals do not end it.
[[nodiscard]] bool await_ready(int fd, short events,
                               std::chrono::steady_clock::time_point deadline);
/// Makes a TCP connection send what it has at once, and notice when the other machine is gone.
void send_small_messages_at_once(int fd, const Address& address);
/// True if the process at the other end of a unix socket runs as this user or as root; always true
/// for TCP.
[[nodiscard]] bool peer_is_trusted(int fd, const Address& address);

/// Requests and replies. A message is: u32 length of the rest, u8 kind, u64 id, fields. Numbers are
/// little-endian; a text field is a u32 length and its bytes.
enum class Message : std::uint8_t {
  // client to server
  hello = 1,
  deregister,
  set,
  get,
  try_get,
  add,
  compare_and_set,
  erase,
  wait,
  cancel,
  // server to client
  ok = 64,
  missing,
  lost,
  refused,
};

inline constexpr std::uint32_t kMagic = 0x31545347;  // "GST1"
/// Largest message: a compare_and_set with a full key and two full values.
inline constexpr std::size_t kMaxMessageBytes = 2 * kStoreMaxValueBytes + kStoreMaxKeyBytes + 64;
/// Largest message of a client that has not introduced itself.
inline constexpr std::size_t kMaxHelloBytes = 4096;

/// Builds one message.
class Writer {
 public:
  Writer(Message kind, std::uint64_t id);
  Writer& u32(std::uint32_t value);
  Writer& i64(std::int64_t value);
  Writer& text(std::string_view value);
  /// The finished message, length included.
  [[nodiscard]] std::string finish();

 private:
  std::string bytes_;
};

/// Takes one message apart; after a field that is not there, ok() is false and fields are empty.
class Reader {
 public:
  explicit Reader(std::string_view body);
  [[nodiscard]] Message kind() const { return kind_; }
  [[nodiscard]] std::uint64_t id() const { return id_; }
  std::uint32_t u32();
  std::int64_t i64();
  std::string_view text();
  [[nodiscard]] bool ok() const { return ok_; }
  /// True if all went well and nothing is left over.
  [[nodiscard]] bool finished() const { return ok_ && rest_.empty(); }

 private:
  std::uint64_t number(std::size_t bytes);

  std::string_view rest_;
  Message kind_{};
  std::uint64_t id_ = 0;
  bool ok_ = true;
};

/// Cuts a byte stream into messages.
class Splitter {
 public:
  void append(std::string_view bytes) { buffer_.append(bytes); }
  /// Body of the next complete message, valid until the next append(); none if it is not complete
  /// yet. Sets broken() if the stream announces a message of more than `limit` bytes or of too few.
  [[nodiscard]] std::optional<std::string_view> next(std::size_t limit);
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  ByteQueue buffer_;
  bool broken_ = false;
};

}  // namespace gantry::store
