#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "command_line/description.hpp"

namespace gantry {
namespace {

// A character of UTF-8 text and the number of its bytes.
std::pair<std::uint32_t, std::size_t> code_point(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  std::uint32_t value = length == 1 ? first : first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length && i < text.size(); ++i) {
    value = value << 6 | (static_cast<unsigned char>(text[i]) & 0x3fU);
  }
  return {value, std::min(length, text.size())};
}

// Text for roff: no request, no escape, no dash that becomes a hyphen.
std::string escaped(std::string_view text) {
  std::string result;
  bool line_start = true;
  while (!text.empty()) {
    const auto [character, bytes] = code_point(text);
    const char plain = text.front();
    if (line_start && (plain == '.' || plain == '\'')) result += "\\&";
    line_start = plain == '\n';
    if (character >= 0x80) {
      result += fmt::format("\\[u{:04X}]", character);
    } else if (plain == '\\') {
      result += "\\e";
    } else if (plain == '-' || plain == '\'' || plain == '`' || plain == '^' || plain == '~') {
      constexpr std::string_view kPlain = "-'`^~";
      constexpr std::string_view kEscapes[] = {"\\-", "\\(aq", "\\(ga", "\\(ha", "\\(ti"};
      result += kEscapes[kPlain.find(plain)];
    } else {
      result += plain;
    }
    text.remove_prefix(bytes);
  }
  return result;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string tag(const OptionDescription& option) {
  std::string text;
  for (const std::string& name : option.names) {
    text += fmt::format("{}\\fB{}\\fR", text.empty() ? "" : ", ", escaped(name));
  }
  if (!option.value.empty()) {
    text += fmt::format("{}\\fI{}\\fR", text.empty() ? "" : " ", escaped(option.value));
  }
  return text;
}

void append_options(std::string& text, const ProgramDescription& program, bool titles) {
  const std::vector<std::string> groups = group_titles(program);
  for (const std::string& group : groups) {
    if (titles && groups.size() > 1) {
      text += fmt::format(".SS {}\n", escaped(group.empty() ? "General" : group));
    }
    for (const OptionDescription& option : program.options) {
      if (option.group != group) continue;
      text += fmt::format(".TP\n{}\n{}\n", tag(option), escaped(option.help));
    }
  }
}

void append_plain(std::string& text, const std::string& lines) {
  if (!lines.empty()) text += fmt::format(".PP\n.nf\n{}\n.fi\n", escaped(lines));
}

}  // namespace

std::string manual_page(const ProgramDescription& program, const std::string& version) {
  std::string text = fmt::format(".TH {} 1 \"\" \"gantry {}\" \"gantry\"\n",
                                 escaped(upper(program.name)), escaped(version));
  std::string summary = program.summary;
  if (summary.ends_with('.')) summary.pop_back();
  text += fmt::format(".SH NAME\n{} \\- {}\n", escaped(program.name), escaped(summary));
  text += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR {}\n", escaped(program.name),
                      escaped(usage_of(program)));
  for (const ProgramDescription& command : program.commands) {
    text += fmt::format(".br\n\\fB{}\\fR {}\n", escaped(command.name), escaped(usage_of(command)));
  }
  text += ".SH OPTIONS\n";
  append_options(text, program, true);
  if (!program.commands.empty()) text += ".SH COMMANDS\n";
  for (const ProgramDescription& command : program.commands) {
    text += fmt::format(".SS {}\n{}\n", escaped(command.name), escaped(command.summary));
    append_options(text, command, false);
    append_plain(text, command.footer);
  }
  if (!program.footer.empty()) {
    text += ".SH NOTES\n";
    append_plain(text, program.footer);
  }
  return text;
}

}  // namespace gantry
