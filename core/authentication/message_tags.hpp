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
// passes. So each message has a tag, which only the two processes can compute. The tag is that of
// ChaCha20-Poly1305 (RFC 8439) with the message as additional data and nothing to encrypt. Its
// nonce is the number of the message on its connection. So a message that is changed, repeated or
// missing has another tag than the receiver expects. Each direction of each connection has its own
// key. libcrypto computes tags of long messages at 10 GB/s. It is loaded when it is needed.

/// Proof that a message is unchanged and in its place.
using MessageTag = std::array<unsigned char, 16>;

/// Throws: NotSupported "<operation>: <cause>" if libcrypto cannot be loaded.
void require_message_tags(std::string_view operation);

/// The tags of the messages in one direction of a connection, in their order.
///
/// Thread safety: none.
class MessageTags {
 public:
  /// `key` is of this direction of this connection alone. Throws: as require_message_tags().
  explicit MessageTags(const Key& key);
  ~MessageTags();
  MessageTags(MessageTags&&) noexcept;
  MessageTags& operator=(MessageTags&&) noexcept;

  /// Adds the next bytes of the current message.
  void add(std::span<const std::byte> bytes);
  void add(std::string_view bytes) { add(std::as_bytes(std::span(bytes))); }
  /// Ends the current message and returns its tag.
  [[nodiscard]] MessageTag finish();
  /// Ends the current message. True if `tag` is its tag.
  [[nodiscard]] bool accept(std::span<const std::byte> tag);

 private:
  struct Context;

  void begin();

  std::unique_ptr<Context> context_;
  std::uint64_t number_ = 0;  // of the current message
  bool has_begun_ = false;
};

}  // namespace gantry
