#include "job/store_messages.hpp"

#include <utility>

namespace gantry::store {
namespace {

constexpr std::size_t kHeaderBytes = 9;  // kind and id

}  // namespace

Writer::Writer(Message kind, std::uint64_t id) : bytes_(4, '\0') {
  bytes_.push_back(static_cast<char>(kind));
  i64(static_cast<std::int64_t>(id));
}

Writer& Writer::u32(std::uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  return *this;
}

Writer& Writer::i64(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  u32(static_cast<std::uint32_t>(bits));
  return u32(static_cast<std::uint32_t>(bits >> 32));
}

Writer& Writer::text(std::string_view value) {
  u32(static_cast<std::uint32_t>(value.size()));
  bytes_.append(value);
  return *this;
}

std::string Writer::finish() {
  const auto length = static_cast<std::uint32_t>(bytes_.size() - 4);
  for (int i = 0; i < 4; ++i) bytes_[i] = static_cast<char>(length >> (8 * i));
  return std::move(bytes_);
}

Reader::Reader(std::string_view body) : rest_(body) {
  kind_ = static_cast<Message>(number(1));
  id_ = number(8);
}

std::uint64_t Reader::number(std::size_t bytes) {
  if (rest_.size() < bytes) {
    ok_ = false;
    rest_ = {};
    return 0;
  }
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(rest_[i])} << (8 * i);
  }
  rest_.remove_prefix(bytes);
  return value;
}

std::uint32_t Reader::u32() { return static_cast<std::uint32_t>(number(4)); }

std::int64_t Reader::i64() { return static_cast<std::int64_t>(number(8)); }

std::string_view Reader::text() {
  const std::size_t length = u32();
  if (rest_.size() < length) {
    ok_ = false;
    rest_ = {};
    return {};
  }
  const std::string_view value = rest_.substr(0, length);
  rest_.remove_prefix(length);
  return value;
}

std::optional<std::string_view> Splitter::next(std::size_t limit) {
  const std::string_view waiting = buffer_.waiting();
  if (broken_ || waiting.size() < 4) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    length |= std::size_t{static_cast<unsigned char>(waiting[i])} << (8 * i);
  }
  if (length > limit || length < kHeaderBytes) {
    broken_ = true;
    return std::nullopt;
  }
  if (waiting.size() < 4 + length) return std::nullopt;
  buffer_.take(4 + length);
  return waiting.substr(4, length);
}

}  // namespace gantry::store
