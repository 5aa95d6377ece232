#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <gantry/extend/store.hpp>

#include "core/bytes.hpp"
#include "job/store/byte_queue.hpp"

// The messages between StoreServer and StoreClient.
namespace gantry::store {

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
  gather,
  exchange,
  prove,
  // server to client
  ok = 64,
  missing,
  lost,
  refused,
  outdated,
  challenge,
};

inline constexpr std::uint32_t kMagic = 0x34545347;  // "GST4"
/// True for the magic of any version of the protocol.
[[nodiscard]] constexpr bool is_magic(std::uint32_t magic) {
  return (magic & 0xffffff) == (kMagic & 0xffffff);
}
/// Largest message: a compare_and_set with a full key and two full values, and its tag.
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
  [[nodiscard]] std::string finish() { return finish(0); }
  /// The message without its end, a text field of `size` characters that the caller sends.
  [[nodiscard]] std::string head_of_text(std::size_t size);

 private:
  [[nodiscard]] std::string finish(std::size_t missing_bytes);

  ByteWriter<std::string> fields_;
};

/// Takes one message apart; after a field that is not there, ok() is false and fields are empty.
class Reader {
 public:
  explicit Reader(std::string_view body);
  [[nodiscard]] Message kind() const { return kind_; }
  [[nodiscard]] std::uint64_t id() const { return id_; }
  std::uint32_t u32() { return fields_.number<std::uint32_t>(); }
  std::int64_t i64() { return fields_.number<std::int64_t>(); }
  std::string_view text() { return fields_.text(); }
  [[nodiscard]] bool ok() const { return fields_.ok(); }
  /// True if no field was missing and nothing is left.
  [[nodiscard]] bool finished() const { return fields_.finished(); }

 private:
  ByteReader fields_;
  Message kind_{};
  std::uint64_t id_ = 0;
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
