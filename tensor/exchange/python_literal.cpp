#include "tensor/exchange/python_literal.hpp"

#include <fmt/format.h>

#include <charconv>

#include "core/text/escaped_text.hpp"

namespace gantry::detail {

namespace {

constexpr std::size_t kShownCharacters = 20;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  NpyDict dict() {
    NpyDict result;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{', "a dict");
    while (!skips('}')) {
      const std::string key = string("a key");
      expect(':', "':'");
      if (key == "descr" && !has_descr) {
        has_descr = true;
        descr(result);
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        result.fortran_order = boolean();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        result.shape = tuple();
      } else {
        throw MalformedHeader(
            fmt::format("expected each of the keys 'descr', 'fortran_order' and 'shape' once, but "
                        "got '{}'",
                        escape_control_characters(key.substr(0, kShownCharacters))));
      }
      if (!skips(',')) {
        expect('}', "',' or '}'");
        break;
      }
    }
    if (!has_descr || !has_order || !has_shape) {
      throw MalformedHeader(fmt::format(
          "expected the keys 'descr', 'fortran_order' and 'shape', but there is no '{}'",
          !has_descr   ? "descr"
          : !has_order ? "fortran_order"
                       : "shape"));
    }
    skip_space();
    if (at_ != text_.size()) fail("the end of the header");
    return result;
  }

 private:
  void descr(NpyDict& result) {
    skip_space();
    if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(')) {
      result.is_structured = true;
      skip_nested();
    } else {
      result.descr = string("a type");
    }
  }

  // A list or tuple, whatever it holds.
  void skip_nested() {
    int depth = 0;
    do {
      skip_space();
      if (at_ == text_.size()) fail("the end of a list");
      const char next = text_[at_];
      if (starts_string()) {
        static_cast<void>(string("a string"));
        continue;
      }
      if (next == '[' || next == '(') ++depth;
      if (next == ']' || next == ')') --depth;
      ++at_;
    } while (depth > 0);
  }

  // Python 2 writes u'<f4'.
  [[nodiscard]] bool starts_string() const {
    const std::string_view rest = text_.substr(at_);
    const std::string_view quoted = rest.starts_with('u') ? rest.substr(1) : rest;
    return quoted.starts_with('\'') || quoted.starts_with('"');
  }

  std::string string(const char* expected) {
    skip_space();
    if (!starts_string()) fail(expected);
    if (text_[at_] == 'u') ++at_;
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == text_.npos) fail("a string that ends");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    if (value.find_first_of("\\\n\r") != value.npos) fail("a string without escapes");
    at_ = end + 1;
    return std::string(value);
  }

  bool boolean() {
    skip_space();
    if (skips_word("True")) return true;
    if (skips_word("False")) return false;
    fail("True or False");
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> result;
    expect('(', "a tuple");
    if (skips(')')) return result;
    while (true) {
      result.push_back(integer());
      const bool has_comma = skips(',');
      if (skips(')')) {
        // (3) is a number in brackets.
        if (!has_comma && result.size() == 1) fail("a tuple");
        return result;
      }
      if (!has_comma) fail("',' or ')'");
    }
  }

  std::int64_t integer() {
    skip_space();
    std::int64_t value = 0;
    const char* const first = text_.data() + at_;
    const auto [end, problem] = std::from_chars(first, text_.data() + text_.size(), value);
    if (problem == std::errc::result_out_of_range) fail("a size below 2^63");
    if (problem != std::errc()) fail("a size");
    if (value < 0 || *first == '-') fail("a size that is not negative");
    at_ += static_cast<std::size_t>(end - first);
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2
    return value;
  }

  void expect(char token, const char* expected) {
    if (!skips(token)) fail(expected);
  }
  bool skips(char token) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != token) return false;
    ++at_;
    return true;
  }
  bool skips_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\n\r\f").find(text_[at_]) != text_.npos)
      ++at_;
  }

  [[noreturn]] void fail(std::string_view expected) const {
    throw MalformedHeader(
        at_ == text_.size()
            ? fmt::format("expected {} in the header, but it ends", expected)
            : fmt::format("expected {} at character {} of the header, but got '{}'", expected, at_,
                          escape_control_characters(text_.substr(at_, kShownCharacters))));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

NpyDict parse_npy_dict(std::string_view text) { return Parser(text).dict(); }

}  // namespace gantry::detail
