// Driver handles as text, to pass them on a command line.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gantry::testing {

/// The bytes of `handle` as hexadecimal digits.
template <class Handle>
std::string to_text(const Handle& handle) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : handle.bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15u];
  }
  return text;
}

/// The handle that to_text wrote.
template <class Handle>
Handle from_text(std::string_view text) {
  Handle handle;
  if (text.size() != 2 * handle.bytes.size()) throw std::invalid_argument("no handle");
  for (std::size_t i = 0; i < handle.bytes.size(); ++i) {
    handle.bytes[i] =
        std::byte(std::stoul(std::string(text.substr(2 * i, 2)), nullptr, 16) & 0xffu);
  }
  return handle;
}

}  // namespace gantry::testing
