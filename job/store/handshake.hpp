#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/authentication/keys.hpp"
#include "core/authentication/message_tags.hpp"

namespace gantry::store {

// Note [The handshake of a store]
// A client of a TCP port cannot know whose process answers there: the port may belong to another
// user, or a relay may stand between. So the token never leaves a process. The client sends a
// nonce. The server answers with one of its own and a proof that it knows the token. The client
// checks it, and only then proves the same. A proof is an HMAC of both nonces under the token, with
// another purpose for each role. Both sides then derive the keys of the connection, and every later
// message has a tag: see Note [Authenticated messages]. A relay can read messages and end the
// connection; it cannot change or add any. The messages: hello{magic, nonce}, challenge{nonce,
// proof}, prove{rank, proof}, then the server's reply with a tag. On a unix socket the kernel tells
// each side the other's user, and hello{magic, rank, token} is all.

/// The random numbers of a connection's two sides.
struct Nonces {
  Key client{};
  Key server{};
};

/// Proofs that the server, or the client that gives `rank`, knows the token.
[[nodiscard]] Key server_proof(std::string_view token, const Nonces& nonces);
[[nodiscard]] Key client_proof(std::string_view token, const Nonces& nonces, std::int64_t rank);

/// The key of the links between the hosts of the job with this token.
[[nodiscard]] Key link_key(std::string_view token);

/// The tags of a connection's messages. A message with a tag is: u32 length of the rest, the
/// message's rest, the tag.
class Seal {
 public:
  enum class Side : std::uint8_t { client, server };
  /// The seal of one side of a connection after its handshake. Throws: as require_message_tags().
  Seal(std::string_view token, const Nonces& nonces, std::int64_t rank, Side side);

  /// Makes room in `message`, or in its head, for the tag, and returns the tag. `tail` is the rest.
  [[nodiscard]] MessageTag close(std::string& message, std::string_view tail);
  /// Takes the tag off `body`. False if the tag belongs to no next message of the other side.
  [[nodiscard]] bool open(std::string_view& body);

 private:
  MessageTags outgoing_;
  MessageTags incoming_;
};

}  // namespace gantry::store
