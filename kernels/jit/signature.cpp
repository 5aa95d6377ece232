#include "kernels/jit/signature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>
#include <span>

#include <gantry/core/error.hpp>

namespace gantry::kernels::jit {

namespace {

using Tokens = std::span<const std::string>;

[[noreturn]] void refuse(std::string_view expected, std::string_view got) {
  throw InvalidArgument(fmt::format("jit::elementwise: expected {}, but got {}", expected, got));
}

// Where the comment or the literal that begins at `at` ends; `at` if there is none.
std::size_t end_of_opaque(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  const auto behind = [&](std::string_view end, std::size_t from) {
    const std::size_t found = text.find(end, from);
    return found == std::string_view::npos ? text.size() : found + end.size();
  };
  if (rest.starts_with("//")) return std::min(text.find('\n', at), text.size());
  if (rest.starts_with("/*")) return behind("*/", at + 2);
  if (rest.front() != '"' && rest.front() != '\'') return at;
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != rest.front()) end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Words and single punctuation characters, without comments, literals and directives.
std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> tokens;
  bool line_begins = true;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\n') line_begins = true;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
    } else if (c == '#' && line_begins) {
      at = std::min(text.find('\n', at), text.size());
    } else if (const std::size_t end = end_of_opaque(text, at); end != at) {
      at = end;
    } else {
      line_begins = false;
      std::size_t last = at + 1;
      if (is_word(c)) {
        const bool is_number = std::isdigit(static_cast<unsigned char>(c)) != 0;  // 1'000
        while (last < text.size() && (is_word(text[last]) || (is_number && text[last] == '\''))) {
          ++last;
        }
      }
      tokens.emplace_back(text.substr(at, last - at));
      at = last;
    }
  }
  return tokens;
}

std::string joined(Tokens tokens) { return fmt::format("'{}'", fmt::join(tokens, " ")); }

// The index behind the bracket that closes the one at `open`; the size if none does.
std::size_t behind_bracket(Tokens tokens, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < tokens.size(); ++i) {
    const std::string& token = tokens[i];
    if (token == "(" || token == "{" || token == "[") ++depth;
    if (token == ")" || token == "}" || token == "]") --depth;
    if (depth == 0) return i + 1;
  }
  return tokens.size();
}

// A function template, as tokens.
struct Declaration {
  std::string type;  // the template's parameter
  Tokens result;     // with specifiers
  std::string name;
  Tokens parameters;
};

// The function template whose "template" stands at `at`, if it is one with a body.
std::optional<Declaration> declaration_at(Tokens tokens, std::size_t at) {
  if (at + 5 > tokens.size() || tokens[at + 1] != "<" || tokens[at + 4] != ">") return {};
  if (tokens[at + 2] != "typename" && tokens[at + 2] != "class") return {};
  const std::size_t begin = at + 5;
  std::size_t open = begin;
  while (open < tokens.size() && tokens[open] != "(" && tokens[open] != "{" &&
         tokens[open] != ";") {
    ++open;
  }
  if (open >= tokens.size() || tokens[open] != "(" || open < begin + 2) return {};
  const std::size_t end = behind_bracket(tokens, open);
  if (end >= tokens.size() || tokens[end] != "{") return {};
  return Declaration{tokens[at + 3], tokens.subspan(begin, open - 1 - begin), tokens[open - 1],
                     tokens.subspan(open + 1, end - open - 2)};
}

std::vector<Tokens> split_at_commas(Tokens tokens) {
  std::vector<Tokens> parts;
  if (tokens.empty()) return parts;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == "(" || tokens[i] == "{") {
      i = behind_bracket(tokens, i) - 1;
    } else if (tokens[i] == ",") {
      parts.push_back(tokens.subspan(begin, i - begin));
      begin = i + 1;
    }
  }
  parts.push_back(tokens.subspan(begin));
  return parts;
}

struct Parameter {
  bool is_output = false;
  bool is_bool = false;
  bool has_default = false;
};

Parameter parse_parameter(Tokens tokens, const std::string& type) {
  Parameter result;
  const auto equals = std::find(tokens.begin(), tokens.end(), "=");
  result.has_default = equals != tokens.end();
  Tokens rest = tokens.first(static_cast<std::size_t>(equals - tokens.begin()));
  const bool is_const = !rest.empty() && rest.front() == "const";
  if (is_const) rest = rest.subspan(1);
  const bool is_known = !rest.empty() && (rest.front() == type || rest.front() == "bool");
  if (is_known) {
    result.is_bool = rest.front() == "bool";
    rest = rest.subspan(1);
    const bool is_reference = !rest.empty() && rest.front() == "&";
    if (is_reference) rest = rest.subspan(1);
    result.is_output = is_reference && !is_const;
  }
  const bool is_name = rest.empty() || (rest.size() == 1 && is_word(rest.front().front()));
  if (!is_known || !is_name || (result.is_output && result.has_default)) {
    refuse(fmt::format("parameters like '{0} x', 'bool x', '{0}& out' or 'bool& out'", type),
           joined(tokens));
  }
  return result;
}

}  // namespace

Signature parse_signature(std::string_view source) {
  const std::vector<std::string> all = tokens_of(source);
  const Tokens tokens(all);
  std::optional<Declaration> last;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == "template") {
      if (auto found = declaration_at(tokens, i)) last = std::move(found);
    } else if (tokens[i] == "{") {
      i = behind_bracket(tokens, i) - 1;
    }
  }
  if (!last) {
    refuse(
        "a source with a function template of one type, such as 'template <typename T> T f(T x) "
        "{ return x; }'",
        "none");
  }
  Signature result;
  result.name = last->name;
  std::vector<std::string> words(last->result.begin(), last->result.end());
  std::erase_if(words, [](const std::string& word) {
    return word == "inline" || word == "static" || word == "constexpr" || word == "const";
  });
  const bool is_void = words == std::vector<std::string>{"void"};
  const bool is_bool = words == std::vector<std::string>{"bool"};
  if (!is_void && !is_bool && words != std::vector<std::string>{last->type}) {
    refuse(fmt::format("'{}' to return {}, bool or void", last->name, last->type),
           joined(last->result));
  }
  for (const Tokens part : split_at_commas(last->parameters)) {
    const Parameter parameter = parse_parameter(part, last->type);
    if (parameter.is_output) {
      result.outputs.push_back(parameter.is_bool ? OutputKind::boolean : OutputKind::promoted);
      continue;
    }
    if (!result.outputs.empty()) {
      refuse(fmt::format("the outputs of '{}' behind its inputs", last->name), joined(part));
    }
    ++result.inputs;
    if (!parameter.has_default) result.required = result.inputs;
  }
  if (is_void == result.outputs.empty()) {
    refuse(fmt::format("'{}' to return a value or to have outputs like '{}& out'", last->name,
                       last->type),
           is_void ? "neither" : "both");
  }
  result.returns = !is_void;
  if (result.returns) {
    result.outputs = {is_bool ? OutputKind::boolean : OutputKind::promoted};
  }
  if (!result.returns && result.required != result.inputs) {
    refuse(fmt::format("'{}' to have no default values before its outputs", last->name), "some");
  }
  if (result.inputs < 1 || result.inputs > kMaxInputs) {
    refuse(fmt::format("'{}' to have 1 to {} inputs", last->name, kMaxInputs),
           std::to_string(result.inputs));
  }
  if (static_cast<int>(result.outputs.size()) > kMaxOutputs) {
    refuse(fmt::format("'{}' to have at most {} outputs", last->name, kMaxOutputs),
           std::to_string(result.outputs.size()));
  }
  return result;
}

}  // namespace gantry::kernels::jit
