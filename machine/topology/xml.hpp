// Elements and attributes of a small XML text.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gantry::machine {

/// One element with what is in it. Text between elements is not kept.
struct XmlElement {
  std::string name;
  std::map<std::string, std::string, std::less<>> attributes;  ///< without spaces at their ends
  std::vector<XmlElement> children;

  /// The attribute, or an empty text.
  [[nodiscard]] std::string attribute(std::string_view name) const;
};

/// Parses a text with one root element. Comments and declarations are skipped, and entities that a
/// declaration defines are not expanded. Throws: InvalidArgument "line 3: expected …, but got …".
[[nodiscard]] XmlElement parse_xml(std::string_view text);

/// The same document as parse_xml() reads it, in UTF-8: without declarations, comments and sections
/// of CDATA. Other readers then need not know them. Throws: as parse_xml().
[[nodiscard]] std::string plain_xml(std::string_view text);

/// True for a text that begins as XML does, behind a byte order mark or not.
[[nodiscard]] bool begins_as_xml(std::string_view text);

}  // namespace gantry::machine
