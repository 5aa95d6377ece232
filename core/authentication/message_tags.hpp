// Authentication of the messages on a connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/authentication/keys.hpp"

namespace gantry {

// Note [Authenticated messages]
// A relay between two processes can read TCP connections, and change, repeat, drop or reorder what
// passes. So each message has a tag, which only the two processes can compute. The tag is the
// tag of ChaCha20-Poly1305 (RFC 8439) with the message as additional data and nothing to encrypt.
// Its nonce is the number of the message on its connection. So a message that is changed, repeated
// or missing has another tag than the receiver expects. Each direction of each connection has its
// own key. libcrypto computes tags of long messages at 5 to 10 GB/s; threads do so aside. It is
// loaded when it is needed.
// Where a message is secret as well, ChaCha20 encrypts its bytes, and the tag covers the encrypted
// bytes. The receiver uses no decrypted byte before the tag is accepted.

/// Proof that a message is unchanged and in its place.
using MessageTag = std::array<unsigned char, 16>;

/// Throws: NotSupported "<operation>: <cause>" if libcrypto cannot be loaded.
void require_message_tags(std::string_view operation);

/// The tags of the messages in one direction of a connection, in their order, at one of its ends.
///
/// A message is bytes that are added, then bytes that are encrypted. Thread safety: none.
class MessageTags {
 public:
  enum class End : std::uint8_t { sender, receiver };

  /// `key` is of this direction of this connection alone. Throws: as require_message_tags().
  MessageTags(const Key& key, End end);
  ~MessageTags();
  MessageTags(MessageTags&&) noexcept;
  MessageTags& operator=(MessageTags&&) noexcept;

  /// Adds the next bytes of the current message.
  void add(std::span<const std::byte> bytes);
  void add(std::string_view bytes) { add(std::as_bytes(std::span(bytes))); }
  /// Adds the next bytes, and writes them to `encrypted`, of the same size. The sender's.
  void encrypt(std::span<const std::byte> bytes, std::byte* encrypted);
  /// Adds the next encrypted bytes, and decrypts them where they are. The receiver's.
  void decrypt(std::span<std::byte> bytes);
  /// Ends the current message and returns its tag. The sender's.
  [[nodiscard]] MessageTag finish();
  /// Ends the current message. True if `tag` is its tag. The receiver's.
  [[nodiscard]] bool accept(std::span<const std::byte> tag);

 private:
  struct Context;

  void begin();
  // Adds bytes as they are, without `output`, or as what is encrypted or decrypted to it.
  void update(std::span<const std::byte> bytes, std::byte* output);

  std::unique_ptr<Context> context_;
  std::uint64_t number_ = 0;  // of the current message
  bool has_begun_ = false;
};

}  // namespace gantry
