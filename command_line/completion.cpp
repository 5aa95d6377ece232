#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "command_line/description.hpp"

namespace gantry {
namespace {

// Text inside '…' of a shell.
std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

// "gantry-bench" and "glaunch dump" as names of shell functions.
std::string function_name(std::string_view name) {
  std::string result = "_";
  for (const char c : name) result += c == ' ' ? '_' : c;
  return result;
}

// "dump" of "glaunch dump".
std::string last_word(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

std::vector<std::string> option_names(const ProgramDescription& program) {
  std::vector<std::string> names;
  for (const OptionDescription& option : program.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

// A function that completes the value of option $1, of which $2 is typed; it fails if the option
// has none.
std::string bash_values(const ProgramDescription& program) {
  std::string text = fmt::format("{}_value() {{\n  case $1 in\n", function_name(program.name));
  for (const OptionDescription& option : program.options) {
    if (option.names.empty() || option.value.empty()) continue;
    std::string action;
    if (!option.choices.empty()) {
      action =
          fmt::format("-W {}", shell_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
    } else if (option.kind != ValueKind::text) {
      action = option.kind == ValueKind::file ? "-f" : "-d";
    }
    text += fmt::format("    {}) ", fmt::join(option.names, "|"));
    text += action.empty()
                ? "COMPREPLY=() ;;\n"
                : fmt::format("mapfile -t COMPREPLY < <(compgen {} -- \"$2\") ;;\n", action);
  }
  return text + "    *) return 1 ;;\n  esac\n}\n";
}

// A function that completes the words behind COMP_WORDS[$1], the name of the program or command.
std::string bash_function(const ProgramDescription& program) {
  const std::string name = function_name(program.name);
  std::string text = bash_values(program);
  text += fmt::format(R"({0}_words() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} at
  if [[ $previous == = ]]; then previous=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
  if [[ $current == = ]]; then current= previous=${{COMP_WORDS[COMP_CWORD - 1]}}; fi
  for ((at = $1 + 1; at < COMP_CWORD; ++at)); do
    if [[ ${{COMP_WORDS[at]}} == -- || ${{COMP_WORDS[at]}} != -* ]]; then break; fi
    if [[ ${{COMP_WORDS[at + 1]}} == = ]]; then
      ((at += 2))
    elif {0}_value "${{COMP_WORDS[at]}}" ''; then
      ((++at))
    fi
  done
  COMPREPLY=()
  if ((at < COMP_CWORD)); then
)",
                      name);
  if (program.runs_program) {
    text += "    case ${COMP_WORDS[at]} in\n";
    for (const ProgramDescription& command : program.commands) {
      text += fmt::format("      {}) {}_words \"$at\"; return ;;\n", last_word(command.name),
                          function_name(command.name));
    }
    text += "    esac\n";
    text += "    if [[ ${COMP_WORDS[at]} == -- ]] && ((at + 1 == COMP_CWORD)); then\n";
    text += "      mapfile -t COMPREPLY < <(compgen -c -- \"$current\")\n      return\n    fi\n";
  }
  text += fmt::format(R"(    mapfile -t COMPREPLY < <(compgen -f -- "$current")
    return
  fi
  if {0}_value "$previous" "$current"; then return; fi
  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W {1} -- "$current")
  else
)",
                      name, shell_quoted(fmt::format("{}", fmt::join(option_names(program), " "))));
  if (program.runs_program) {
    std::vector<std::string> commands;
    for (const ProgramDescription& command : program.commands) {
      commands.push_back(last_word(command.name));
    }
    text += fmt::format("    mapfile -t COMPREPLY < <(compgen -W {} -c -- \"$current\")\n",
                        shell_quoted(fmt::format("{}", fmt::join(commands, " "))));
  } else {
    text += "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n";
  }
  return text + "  fi\n}\n";
}

// Text inside the brackets of a specification of _arguments.
std::string zsh_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (std::string_view("\\[]:`$").find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_value(const OptionDescription& option) {
  if (option.value.empty()) return "";
  std::string action = " ";
  if (!option.choices.empty()) action = fmt::format("({})", fmt::join(option.choices, " "));
  if (option.kind == ValueKind::file) action = "_files";
  if (option.kind == ValueKind::directory) action = "_files -/";
  return fmt::format(":{}:{}", zsh_escaped(option.value), action);
}

// "--color=", "-n+": the value may be part of the word or the next one.
std::vector<std::string> zsh_names(const OptionDescription& option) {
  std::vector<std::string> names = option.names;
  for (std::string& name : names) {
    if (!option.value.empty()) name += name.starts_with("--") ? '=' : '+';
  }
  return names;
}

// The arguments of _arguments for the options, one a line.
std::string zsh_options(const ProgramDescription& program, std::string_view indent) {
  std::string text;
  for (const OptionDescription& option : program.options) {
    if (option.names.empty()) continue;
    const std::string rest =
        shell_quoted(fmt::format("[{}]{}", zsh_escaped(option.help), zsh_value(option)));
    const std::vector<std::string> names = zsh_names(option);
    text += names.size() == 1 ? fmt::format(" \\\n{}{}{}", indent, names.front(), rest)
                              : fmt::format(" \\\n{}{{{}}}{}", indent, fmt::join(names, ","), rest);
  }
  return text;
}

}  // namespace

std::string bash_completion(const ProgramDescription& program) {
  const std::string name = function_name(program.name);
  std::string text = fmt::format("# bash completion of {}\n", program.name);
  for (const ProgramDescription& command : program.commands) text += bash_function(command);
  text += bash_function(program);
  text += fmt::format("{0}() {{ {0}_words 0; }}\ncomplete -o filenames -F {0} {1}\n", name,
                      program.name);
  return text;
}

std::string zsh_completion(const ProgramDescription& program) {
  std::string text = fmt::format("#compdef {}\n", program.name);
  if (!program.runs_program) {
    return text +
           fmt::format("_arguments -s -S{} \\\n  '*:file:_files'\n", zsh_options(program, "  "));
  }
  text += "local curcontext=$curcontext state state_descr line\ntypeset -A opt_args\n";
  text += fmt::format(
      "_arguments -s -S -C{} \\\n  '(-)1:program:->program' \\\n  '*::arguments:->arguments'\n",
      zsh_options(program, "  "));
  std::vector<std::string> commands;
  for (const ProgramDescription& command : program.commands) {
    commands.push_back(
        shell_quoted(fmt::format("{}:{}", last_word(command.name), zsh_escaped(command.summary))));
  }
  text += fmt::format(
      "case $state in\n  program)\n    local -a commands=({})\n    _describe -t commands command "
      "commands\n    _command_names -e\n    ;;\n  arguments)\n    case $words[1] in\n",
      fmt::join(commands, " "));
  for (const ProgramDescription& command : program.commands) {
    text += fmt::format("      {}) _arguments -s -S{} \\\n        '*:file:_files' ;;\n",
                        last_word(command.name), zsh_options(command, "        "));
  }
  return text + "      *) _normal ;;\n    esac\n    ;;\nesac\n";
}

}  // namespace gantry
