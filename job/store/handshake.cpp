#include "job/store/handshake.hpp"

#include <span>

#include "core/bytes.hpp"
#include "job/store/messages.hpp"

namespace gantry::store {
namespace {

constexpr std::size_t kLengthBytes = 4;

// Another version has other proofs and keys.
std::string version() {
  ByteWriter<std::string> number;
  number.number(kMagic);
  return number.bytes();
}

std::string text_of_rank(std::int64_t rank) {
  ByteWriter<std::string> number;
  number.number(rank);
  return number.bytes();
}

// The tags of what `side` sends, at one end of the connection.
MessageTags tags_from(Seal::Side side, MessageTags::End end, std::string_view token,
                      const Nonces& nonces, std::int64_t rank) {
  const std::string_view purpose = side == Seal::Side::client ? "gantry store messages of client"
                                                              : "gantry store messages of server";
  return MessageTags(
      derive_key(token, purpose,
                 {version(), text_of(nonces.client), text_of(nonces.server), text_of_rank(rank)}),
      end);
}

Seal::Side other(Seal::Side side) {
  return side == Seal::Side::client ? Seal::Side::server : Seal::Side::client;
}

}  // namespace

Key server_proof(std::string_view token, const Nonces& nonces) {
  return derive_key(token, "gantry store proof of server",
                    {version(), text_of(nonces.client), text_of(nonces.server)});
}

Key client_proof(std::string_view token, const Nonces& nonces, std::int64_t rank) {
  return derive_key(
      token, "gantry store proof of client",
      {version(), text_of(nonces.client), text_of(nonces.server), text_of_rank(rank)});
}

Key link_key(std::string_view token) { return derive_key(token, "gantry host links", {}); }

Seal::Seal(std::string_view token, const Nonces& nonces, std::int64_t rank, Side side)
    : outgoing_(tags_from(side, MessageTags::End::sender, token, nonces, rank)),
      incoming_(tags_from(other(side), MessageTags::End::receiver, token, nonces, rank)) {}

MessageTag Seal::close(std::string& message, std::string_view tail) {
  ByteWriter<std::string> length;
  length.number(
      static_cast<std::uint32_t>(message.size() - kLengthBytes + tail.size() + sizeof(MessageTag)));
  message.replace(0, kLengthBytes, length.bytes());
  outgoing_.add(std::string_view(message).substr(kLengthBytes));
  outgoing_.add(tail);
  return outgoing_.finish();
}

bool Seal::open(std::string_view& body) {
  if (body.size() < sizeof(MessageTag)) return false;
  const std::string_view tag = body.substr(body.size() - sizeof(MessageTag));
  body.remove_suffix(sizeof(MessageTag));
  incoming_.add(body);
  return incoming_.accept(std::as_bytes(std::span(tag)));
}

}  // namespace gantry::store
