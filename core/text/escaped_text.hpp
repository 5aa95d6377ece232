// Text of another process, made fit for a terminal or for XML.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace gantry {

/// Whether line ends and tabs stay as they are.
enum class LineEnds { escape, keep };

/// `text` without anything that a terminal acts on: control characters, C1 ones included, marks
/// that change the direction of text, and bytes that are no UTF-8 become "\x1b" or "\u202e".
/// Everything that another process wrote passes through here before it is printed or thrown.
[[nodiscard]] std::string escape_control_characters(std::string_view text,
                                                    LineEnds line_ends = LineEnds::escape);

/// A fixed field of shared memory: up to its first zero byte, escaped.
template <std::size_t Size>
[[nodiscard]] std::string escaped_field(const char (&field)[Size]) {
  return escape_control_characters({field, strnlen(field, Size)});
}

/// `text` as the content of an XML element or attribute. Control characters that XML does not allow
/// become spaces.
[[nodiscard]] std::string escape_xml(std::string_view text);

}  // namespace gantry
