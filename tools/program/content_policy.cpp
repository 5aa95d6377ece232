#include "tools/program/content_policy.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "core/text/sha256.hpp"

namespace gantry {
namespace {

unsigned value_of(char digit) {
  return static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

// The digest as base64, as policies have it.
std::string base64_digest(std::string_view text) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string hex = sha256_hex(text);
  std::string digits;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char digit : hex) {
    bits = bits << 4 | value_of(digit);
    for (count += 4; count >= 6; count -= 6) digits += kDigits[bits >> (count - 6) & 63];
  }
  // 256 bits are 42 digits and 4 bits.
  return digits + kDigits[bits << 2 & 63] + "=";
}

// " 'sha256-…'" for each element; " 'none'" without one.
std::string sources_of(std::initializer_list<std::string_view> parts, std::string_view tag) {
  const std::string begin = fmt::format("<{}>", tag);
  const std::string end = fmt::format("</{}>", tag);
  std::string sources;
  for (const std::string_view part : parts) {
    for (std::size_t at = 0; (at = part.find(begin, at)) != std::string_view::npos;) {
      at += begin.size();
      const std::string_view text = part.substr(at, part.find(end, at) - at);
      sources += fmt::format(" 'sha256-{}'", base64_digest(text));
      at += text.size();
    }
  }
  return sources.empty() ? " 'none'" : sources;
}

}  // namespace

std::string content_policy(std::initializer_list<std::string_view> parts) {
  return fmt::format(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src{}; "
      "style-src{}; base-uri 'none'; form-action 'none'\">",
      sources_of(parts, "script"), sources_of(parts, "style"));
}

}  // namespace gantry
