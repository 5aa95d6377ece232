// The binary encoding of messages: little-endian numbers without padding, and a checksum.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gantry {

/// Returns the FNV-1a hash of `bytes`. It detects accidental damage, not forgery.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}
[[nodiscard]] inline std::uint64_t fnv1a(std::string_view text) {
  return fnv1a(std::as_bytes(std::span(text)));
}

/// Appends fields to a container of bytes or characters.
template <class Bytes = std::vector<std::byte>>
class ByteWriter {
 public:
  template <std::integral T>
  ByteWriter& number(T value) {
    const auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<typename Bytes::value_type>(bits >> (8 * i) & 0xff));
    }
    return *this;
  }
  ByteWriter& raw(std::span<const std::byte> data) {
    const auto* const first = reinterpret_cast<const typename Bytes::value_type*>(data.data());
    bytes_.insert(bytes_.end(), first, first + data.size());
    return *this;
  }
  /// Writes a 32-bit length and then the characters.
  ByteWriter& text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    return raw(std::as_bytes(std::span(value)));
  }
  /// Writes `width` bytes: the first characters, padded with zero bytes.
  ByteWriter& fixed_text(std::string_view value, std::size_t width) {
    value = value.substr(0, width);
    raw(std::as_bytes(std::span(value)));
    for (std::size_t i = value.size(); i < width; ++i) bytes_.push_back({});
    return *this;
  }
  [[nodiscard]] Bytes& bytes() { return bytes_; }

 private:
  Bytes bytes_;
};

/// Reads the fields that a ByteWriter wrote. After a field that is missing, ok() is false and every
/// field is zero or empty. Views refer to the bytes read from.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : remaining_(bytes) {}
  explicit ByteReader(std::string_view text) : ByteReader(std::as_bytes(std::span(text))) {}

  std::span<const std::byte> raw(std::size_t count) {
    if (remaining_.size() < count) {
      ok_ = false;
      remaining_ = {};
      return {};
    }
    const auto taken = remaining_.first(count);
    remaining_ = remaining_.subspan(count);
    return taken;
  }
  template <std::integral T>
  T number() {
    std::make_unsigned_t<T> value = 0;
    const auto taken = raw(sizeof(T));
    for (std::size_t i = 0; i < taken.size(); ++i) {
      value = static_cast<std::make_unsigned_t<T>>(
          value | static_cast<std::make_unsigned_t<T>>(taken[i]) << (8 * i));
    }
    return static_cast<T>(value);
  }
  /// Reads what ByteWriter::text wrote.
  std::string_view text() { return characters(raw(number<std::uint32_t>())); }
  /// Reads what ByteWriter::fixed_text wrote, up to the first zero byte.
  std::string_view fixed_text(std::size_t width) {
    const std::string_view value = characters(raw(width));
    return value.substr(0, value.find('\0'));
  }

  [[nodiscard]] bool ok() const { return ok_; }
  /// True if no field was missing and nothing is left.
  [[nodiscard]] bool finished() const { return ok_ && remaining_.empty(); }

 private:
  static std::string_view characters(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::span<const std::byte> remaining_;
  bool ok_ = true;
};

}  // namespace gantry
