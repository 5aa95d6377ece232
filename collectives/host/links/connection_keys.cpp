#include "collectives/host/links/connection_keys.hpp"

#include <algorithm>
#include <string_view>

#include "collectives/host/links/handshake.hpp"
#include "core/bytes.hpp"

namespace gantry {

namespace {

std::string text_of(const ControlMessage& message) {
  ByteWriter<std::string> writer;
  writer.number(static_cast<std::int32_t>(message.kind)).number(message.failed_rank);
  return writer.bytes();
}

std::string_view name_of(LinkSide side) {
  return side == LinkSide::dialler ? "dialler" : "acceptor";
}

std::string_view text_of(const MessageTag& tag) {
  return {reinterpret_cast<const char*>(tag.data()), tag.size()};
}

}  // namespace

Key group_key(const Key& job_key, const std::vector<std::string>& addresses) {
  ByteWriter<std::string> all;
  for (const std::string& address : addresses) all.text(address);
  return derive_key(gantry::text_of(job_key), "gantry group of ranks", {all.bytes()});
}

ConnectionKey::ConnectionKey(const Key& group, const Hello& hello) {
  ByteWriter<std::string> ends;
  ends.number(hello.from).number(hello.to).number(static_cast<std::int32_t>(hello.purpose));
  key_ = derive_key(gantry::text_of(group), "gantry link",
                    {std::string_view(hello.magic.data(), hello.magic.size()), ends.bytes(),
                     gantry::text_of(hello.nonce)});
}

Key ConnectionKey::proof_of(const Hello& /*hello*/) const {
  return derive_key(gantry::text_of(key_), "hello", {});
}

Key ConnectionKey::proof_of(const Answer& answer) const {
  ByteWriter<std::string> kind;
  kind.number(static_cast<std::int32_t>(answer.kind));
  return derive_key(gantry::text_of(key_), "answer",
                    {gantry::text_of(answer.nonce), kind.bytes(), text_of(answer.message)});
}

LastWord ConnectionKey::last_word(LinkSide side, const ControlMessage& message) const {
  LastWord word{message, {}};
  const Key whole =
      derive_key(gantry::text_of(key_), "last word", {name_of(side), text_of(message)});
  std::copy_n(whole.begin(), word.tag.size(), word.tag.begin());
  return word;
}

DataTags ConnectionKey::data_tags(LinkSide side, const Key& acceptor_nonce, Secrecy secrecy) const {
  const std::string_view purpose = secrecy == Secrecy::encrypted ? "encrypted data" : "data";
  const auto tags_of = [&](LinkSide sender) {
    return MessageTags(derive_key(gantry::text_of(key_), purpose,
                                  {name_of(sender), gantry::text_of(acceptor_nonce)}),
                       sender == side ? MessageTags::End::sender : MessageTags::End::receiver);
  };
  const LinkSide other = side == LinkSide::dialler ? LinkSide::acceptor : LinkSide::dialler;
  return {tags_of(side), tags_of(other), secrecy};
}

bool is_proof(const Key& proof, const Key& given) noexcept {
  return equal_secrets(gantry::text_of(proof), gantry::text_of(given));
}

bool is_authentic(const ConnectionKey& key, LinkSide side, const LastWord& word) noexcept {
  return equal_secrets(text_of(key.last_word(side, word.message).tag), text_of(word.tag));
}

}  // namespace gantry
