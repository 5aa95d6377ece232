#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "command_line/description.hpp"

namespace gantry {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kMaxNameColumns = 28;  // wider names push their help aside

// Characters of UTF-8 text.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string left_side(const OptionDescription& option) {
  if (option.names.empty()) return "  " + option.value;
  const bool only_long = option.names.front().starts_with("--");
  return fmt::format("  {}{}{}{}", only_long ? "    " : "", fmt::join(option.names, ", "),
                     option.value.empty() ? "" : " ", option.value);
}

// Appends words, with new lines indented by `indent`, from column `column` on.
void append_wrapped(std::string& text, const std::string& words, std::size_t column,
                    std::size_t indent) {
  std::istringstream stream(words);
  bool first = true;
  for (std::string word; stream >> word; first = false) {
    if (!first && column + 1 + width(word) > kColumns) {
      text += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      text += ' ';
      ++column;
    }
    text += word;
    column += width(word);
  }
  text += '\n';
}

void append_row(std::string& text, const std::string& left, const std::string& help,
                std::size_t indent) {
  text += left;
  std::size_t column = width(left);
  if (column + 2 > indent) {
    const bool fits = column + 2 + width(help) <= kColumns;
    text += fits ? "  " : '\n' + std::string(indent, ' ');
    column = fits ? column + 2 : indent;
  } else {
    text += std::string(indent - column, ' ');
    column = indent;
  }
  append_wrapped(text, help, column, indent);
}

}  // namespace

std::string usage_of(const ProgramDescription& program) {
  if (!program.usage.empty()) return program.usage;
  std::string usage = "[options]";
  for (const OptionDescription& option : program.options) {
    if (!option.names.empty()) continue;
    usage += fmt::format(fmt::runtime(option.required ? " {}" : " [{}]"), option.value);
  }
  return usage;
}

std::vector<std::string> group_titles(const ProgramDescription& program) {
  std::vector<std::string> titles;
  for (const OptionDescription& option : program.options) {
    if (std::find(titles.begin(), titles.end(), option.group) == titles.end()) {
      titles.push_back(option.group);
    }
  }
  return titles;
}

namespace {

std::string first_lines(const ProgramDescription& program) {
  return fmt::format("Usage: {} {}\n{}\n", program.name, usage_of(program), program.summary);
}

// The column where the help of options begins.
std::size_t help_column(const ProgramDescription& program) {
  std::size_t indent = 0;
  for (const OptionDescription& option : program.options) {
    indent = std::max(indent, std::min(width(left_side(option)), kMaxNameColumns) + 2);
  }
  return indent;
}

void append_commands(std::string& text, const ProgramDescription& program, std::size_t indent) {
  if (!program.commands.empty()) text += "\nCommands:\n";
  for (const ProgramDescription& command : program.commands) {
    append_row(text, "  " + command.name, command.summary, indent);
  }
}

}  // namespace

bool has_short_help(const ProgramDescription& program) {
  return std::any_of(program.options.begin(), program.options.end(),
                     [](const OptionDescription& option) { return option.common; });
}

std::string short_help_text(const ProgramDescription& program) {
  std::string text = first_lines(program) + "\n";
  const std::size_t indent = help_column(program);
  for (const OptionDescription& option : program.options) {
    if (option.common) append_row(text, left_side(option), option.help, indent);
  }
  append_commands(text, program, indent);
  return text;
}

std::string help_text(const ProgramDescription& program) {
  std::string text = first_lines(program);
  const std::size_t indent = help_column(program);
  for (const std::string& group : group_titles(program)) {
    text += group.empty() ? "\n" : fmt::format("\n{}:\n", group);
    for (const OptionDescription& option : program.options) {
      if (option.group == group) append_row(text, left_side(option), option.help, indent);
    }
  }
  append_commands(text, program, indent);
  if (!program.footer.empty()) text += fmt::format("\n{}\n", program.footer);
  return text;
}

}  // namespace gantry
