#include "core/text/escaped_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace gantry {
namespace {

// One character of UTF-8; of length 0 if the bytes are none.
struct Character {
  std::uint32_t code = 0;
  std::size_t length = 0;
};

Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead < 0xc2   ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 0;
  if (length == 0 || text.size() < length) return {};
  std::uint32_t code = lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[length] || code > 0x10ffff || is_surrogate) return {};
  return {code, length};
}

bool is_control(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) ||  // C0, DEL, C1
         code == 0x200e || code == 0x200f || code == 0x061c ||
         (code >= 0x2028 && code <= 0x202e) ||  // line ends and directions
         (code >= 0x2066 && code <= 0x2069);
}

bool is_printable_ascii(char c) { return c >= ' ' && c <= '~'; }

}  // namespace

std::string escape_control_characters(std::string_view text, LineEnds line_ends) {
  std::string result;
  result.reserve(text.size());
  for (;;) {
    const auto plain = std::find_if_not(text.begin(), text.end(), is_printable_ascii);
    result.append(text.begin(), plain);
    text.remove_prefix(static_cast<std::size_t>(plain - text.begin()));
    if (text.empty()) return result;
    const Character next = first_character(text);
    const bool stays = line_ends == LineEnds::keep && (next.code == '\n' || next.code == '\t');
    if (next.length == 0) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (!is_control(next.code) || (next.length == 1 && stays)) {
      result += text.substr(0, next.length);
    } else {
      result += next.code < 0x100 ? fmt::format("\\x{:02x}", next.code)
                                  : fmt::format("\\u{:04x}", next.code);
    }
    text.remove_prefix(std::max<std::size_t>(next.length, 1));
  }
}

bool has_hidden_controls(std::string_view text) {
  while (!text.empty()) {
    const Character next = first_character(text);
    if (next.length > 0 && next.code >= 0x7f && is_control(next.code)) return true;
    text.remove_prefix(std::max<std::size_t>(next.length, 1));
  }
  return false;
}

std::string escape_xml(std::string_view text) {
  const auto is_forbidden = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t';
  };
  std::string allowed(text);
  std::replace_if(allowed.begin(), allowed.end(), is_forbidden, ' ');
  std::string result;
  for (const char c : escape_control_characters(allowed, LineEnds::keep)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace gantry
