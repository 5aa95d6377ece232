#include "job/store/messages.hpp"

#include <utility>

namespace gantry::store {
namespace {

constexpr std::size_t kHeaderBytes = 9;  // kind and id

}  // namespace

Writer::Writer(Message kind, std::uint64_t id) {
  fields_.number(std::uint32_t{0});  // the length, see finish()
  fields_.number(static_cast<std::uint8_t>(kind)).number(id);
}

Writer& Writer::u32(std::uint32_t value) {
  fields_.number(value);
  return *this;
}

Writer& Writer::i64(std::int64_t value) {
  fields_.number(value);
  return *this;
}

Writer& Writer::text(std::string_view value) {
  fields_.text(value);
  return *this;
}

std::string Writer::head_of_text(std::size_t size) {
  u32(static_cast<std::uint32_t>(size));
  return finish(size);
}

std::string Writer::finish(std::size_t missing_bytes) {
  std::string& message = fields_.bytes();
  ByteWriter<std::string> length;
  length.number(static_cast<std::uint32_t>(message.size() - 4 + missing_bytes));
  message.replace(0, 4, length.bytes());
  return std::move(message);
}

Reader::Reader(std::string_view body)
    : fields_(body),
      kind_(static_cast<Message>(fields_.number<std::uint8_t>())),
      id_(fields_.number<std::uint64_t>()) {}

std::optional<std::string_view> Splitter::next(std::size_t limit) {
  const std::string_view waiting = buffer_.waiting();
  if (broken_ || waiting.size() < 4) return std::nullopt;
  const std::size_t length = ByteReader(waiting).number<std::uint32_t>();
  if (length > limit || length < kHeaderBytes) {
    broken_ = true;
    return std::nullopt;
  }
  if (waiting.size() < 4 + length) {
    buffer_.reserve(4 + length);  // once, however many parts it arrives in
    return std::nullopt;
  }
  buffer_.take(4 + length);
  return waiting.substr(4, length);
}

}  // namespace gantry::store
