// Elements and attributes of a small XML text.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

/// One element with what is in it. Text between elements is not kept.
struct XmlElement {
  std::string name;
  std::map<std::string, std::string, std::less<>> attributes;
  std::vector<XmlElement> children;

  /// The attribute, or an empty text.
  [[nodiscard]] std::string attribute(std::string_view name) const;
};

/// Parses a text with one root element. Comments and declarations are skipped.
/// Throws: InvalidArgument "line 3: expected …, but got …".
[[nodiscard]] XmlElement parse_xml(std::string_view text);

}  // namespace gantry
