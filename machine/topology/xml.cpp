#include "machine/topology/xml.hpp"

#include <fmt/format.h>
#include <pugixml.hpp>

#include <algorithm>
#include <cstddef>
#include <sstream>

#include <gantry/core/error.hpp>

namespace gantry::machine {
namespace {

constexpr int kMaxDepth = 64;
// A tag of four bytes becomes a node of many more.
constexpr std::ptrdiff_t kMaxTags = 1 << 20;

constexpr const char* kSpaces = " \t\r\n";

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1));
}

std::ptrdiff_t line_at(std::string_view text, std::ptrdiff_t offset) {
  const auto end = std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(text.size()));
  return std::count(text.begin(), text.begin() + end, '\n') + 1;
}

[[noreturn]] void fail_at(std::string_view text, std::ptrdiff_t offset, std::string_view expected) {
  const auto at = static_cast<std::size_t>(
      std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(text.size())));
  const std::string_view rest = text.substr(at);
  const std::string_view line = rest.substr(0, std::min<std::size_t>(rest.find('\n'), 20));
  const std::string got = rest.empty() ? "the end" : fmt::format("'{}'", line);
  throw InvalidArgument(
      fmt::format("line {}: expected {}, but got {}", line_at(text, offset), expected, got));
}

std::string expectation(pugi::xml_parse_status status) {
  switch (status) {
    case pugi::status_end_element_mismatch:
      return "an end tag for each element";
    case pugi::status_bad_attribute:
      return "an attribute such as name=\"value\"";
    case pugi::status_bad_start_element:
    case pugi::status_unrecognized_tag:
      return "an element such as <name attribute=\"value\">";
    case pugi::status_bad_end_element:
      return "an end tag such as </name>";
    case pugi::status_no_document_element:
      return "an element";
    case pugi::status_ok:
    case pugi::status_file_not_found:
    case pugi::status_io_error:
    case pugi::status_out_of_memory:
    case pugi::status_internal_error:
    case pugi::status_bad_pi:
    case pugi::status_bad_comment:
    case pugi::status_bad_cdata:
    case pugi::status_bad_doctype:
    case pugi::status_bad_pcdata:
    case pugi::status_append_invalid_root:
      break;
  }
  return "XML";
}

// Text of CDATA sections becomes plain text, which every reader knows.
void simplify(pugi::xml_node node, std::string_view text, int depth) {
  if (depth > kMaxDepth) {
    fail_at(text, node.offset_debug(), fmt::format("at most {} levels", kMaxDepth));
  }
  for (pugi::xml_node child = node.first_child(); child;) {
    const pugi::xml_node next = child.next_sibling();
    if (child.type() == pugi::node_cdata) {
      node.insert_child_before(pugi::node_pcdata, child).set_value(child.value());
      node.remove_child(child);
    } else if (child.type() == pugi::node_element) {
      simplify(child, text, depth + 1);
    }
    child = next;
  }
}

void load(std::string_view text, pugi::xml_document& document) {
  if (std::count(text.begin(), text.end(), '<') > kMaxTags) {
    throw InvalidArgument(fmt::format("expected at most {} tags, but got more", kMaxTags));
  }
  const pugi::xml_parse_result result = document.load_buffer(text.data(), text.size());
  if (result.status == pugi::status_out_of_memory)
    throw InvalidArgument("it needs too much memory");
  if (!result) fail_at(text, result.offset, expectation(result.status));
  pugi::xml_node root;
  for (const pugi::xml_node node : document.children()) {
    if (node.type() != pugi::node_element) continue;
    if (root) fail_at(text, node.offset_debug(), "the end of the text");
    root = node;
  }
  simplify(document, text, -1);
}

XmlElement element_of(const pugi::xml_node& node) {
  XmlElement element;
  element.name = node.name();
  for (const pugi::xml_attribute attribute : node.attributes()) {
    element.attributes.insert_or_assign(attribute.name(), trimmed(attribute.value()));
  }
  for (const pugi::xml_node child : node.children()) {
    if (child.type() == pugi::node_element) element.children.push_back(element_of(child));
  }
  return element;
}

}  // namespace

std::string XmlElement::attribute(std::string_view key) const {
  const auto found = attributes.find(key);
  return found == attributes.end() ? std::string() : found->second;
}

XmlElement parse_xml(std::string_view text) {
  pugi::xml_document document;
  load(text, document);
  return element_of(document.document_element());
}

std::string plain_xml(std::string_view text) {
  pugi::xml_document document;
  load(text, document);
  std::ostringstream out;
  document.document_element().print(out, "", pugi::format_raw, pugi::encoding_utf8);
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + out.str() + "\n";
}

bool begins_as_xml(std::string_view text) {
  // A byte order mark of UTF-16 or UTF-32, or their first '<': JSON has none of them.
  for (const std::string_view mark :
       {std::string_view("\xfe\xff"), std::string_view("\xff\xfe"),
        std::string_view("\0\0\xfe\xff", 4), std::string_view("\0<", 2), std::string_view("<\0", 2),
        std::string_view("\0\0\0<", 4)}) {
    if (text.starts_with(mark)) return true;
  }
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const auto first = text.find_first_not_of(kSpaces);
  return first != std::string_view::npos && text[first] == '<';
}

}  // namespace gantry::machine
