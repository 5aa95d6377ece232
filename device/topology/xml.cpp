#include "device/topology/xml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <gantry/core/error.hpp>

namespace gantry {
namespace {

constexpr int kMaxDepth = 64;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  XmlElement document() {
    skip_to_element();
    XmlElement root = element(0);
    skip_to_element();
    if (!rest().empty()) fail("the end of the text");
    return root;
  }

 private:
  [[nodiscard]] std::string_view rest() const { return text_.substr(at_); }

  [[noreturn]] void fail(std::string_view expected) const {
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<long>(at_), '\n') + 1;
    std::string got(rest().substr(0, std::min<std::size_t>(rest().find('\n'), 20)));
    throw InvalidArgument(fmt::format("line {}: expected {}, but got {}", line, expected,
                                      rest().empty() ? "the end" : "'" + got + "'"));
  }

  bool take(std::string_view token) {
    if (!rest().starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  void skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  void skip_past(std::string_view token) {
    const auto found = text_.find(token, at_);
    if (found == std::string_view::npos) {
      at_ = text_.size();
      fail(fmt::format("'{}'", token));
    }
    at_ = found + token.size();
  }

  // To the next tag, past text, comments and declarations.
  void skip_to_element() {
    for (;;) {
      at_ = std::min(text_.find('<', at_), text_.size());
      if (take("<!--")) {
        skip_past("-->");
      } else if (take("<?")) {
        skip_past("?>");
      } else if (take("<!")) {
        skip_past(">");
      } else {
        return;
      }
    }
  }

  std::string word(std::string_view what) {
    const std::size_t begin = at_;
    const auto belongs = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
             c == ':';
    };
    while (at_ < text_.size() && belongs(text_[at_])) ++at_;
    if (at_ == begin) fail(what);
    return std::string(text_.substr(begin, at_ - begin));
  }

  static std::string unescaped(std::string_view text) {
    constexpr std::array<std::pair<std::string_view, char>, 5> kEntities{
        {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}}};
    std::string result;
    while (!text.empty()) {
      const auto entity = std::find_if(kEntities.begin(), kEntities.end(), [&](const auto& one) {
        return text.starts_with(one.first);
      });
      const bool found = entity != kEntities.end();
      result += found ? entity->second : text.front();
      text.remove_prefix(found ? entity->first.size() : 1);
    }
    return result;
  }

  XmlElement element(int depth) {
    if (!take("<")) fail("'<'");
    if (depth > kMaxDepth) fail(fmt::format("at most {} levels", kMaxDepth));
    XmlElement result;
    result.name = word("the name of an element");
    for (;;) {
      skip_spaces();
      if (take("/>")) return result;
      if (take(">")) break;
      std::string key = word("an attribute, '>' or '/>'");
      if (!take("=")) fail("'='");
      const char quote = rest().starts_with('\'') ? '\'' : '"';
      if (!take(std::string_view(&quote, 1))) fail("'\"'");
      const std::size_t begin = at_;
      skip_past(std::string_view(&quote, 1));
      result.attributes.insert_or_assign(std::move(key),
                                         unescaped(text_.substr(begin, at_ - 1 - begin)));
    }
    for (;;) {
      skip_to_element();
      if (take("</")) {
        if (!take(result.name) || !take(">")) fail(fmt::format("</{}>", result.name));
        return result;
      }
      result.children.push_back(element(depth + 1));
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string XmlElement::attribute(std::string_view key) const {
  const auto found = attributes.find(key);
  return found == attributes.end() ? std::string() : found->second;
}

XmlElement parse_xml(std::string_view text) { return Parser(text).document(); }

}  // namespace gantry
