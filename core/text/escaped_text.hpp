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
///
/// Texts of other processes and files pass through here by their type: in the constructor of Error,
/// in the log, in a Topology, and as JSON and XML. Other output calls it.
[[nodiscard]] std::string escape_control_characters(std::string_view text,
                                                    LineEnds line_ends = LineEnds::escape);

/// A fixed field of shared memory: up to its first zero byte, escaped.
template <std::size_t Size>
[[nodiscard]] std::string escaped_field(const char (&field)[Size]) {
  return escape_control_characters({field, strnlen(field, Size)});
}

/// True if `text` has control characters that JSON and XML leave as they are: DEL, C1 ones, and
/// marks that change the direction of text.
[[nodiscard]] bool has_hidden_controls(std::string_view text);

/// `text` as the content of an XML element or attribute. Control characters that XML does not allow
/// become spaces, others are escaped as above.
[[nodiscard]] std::string escape_xml(std::string_view text);

}  // namespace gantry
