// The source of help, manual page and completion of a program.
#pragma once

#include <deque>
#include <string>
#include <vector>

namespace gantry {

/// The thing that an option's value names; a shell completes it accordingly.
enum class ValueKind { text, file, directory };

/// One option or argument of a program.
struct OptionDescription {
  std::string group = {};               ///< title of its group; empty: the options without a title
  std::vector<std::string> names = {};  ///< "-n", "--ranks"; empty for an argument
  std::string value = {};               ///< name of its value or of the argument; empty for a flag
  std::string help = {};
  std::vector<std::string> choices = {};  ///< the values, if there are few
  ValueKind kind = ValueKind::text;
  bool required = false;
  bool hidden = false;  ///< accepted, but not shown
  bool common = false;  ///< shown by --help, where only --help-all shows the others
};

/// A program, or one command of it such as `glaunch dump`.
struct ProgramDescription {
  std::string name;
  std::string summary;
  std::string usage;                      ///< what follows the name; empty: made from the options
  std::deque<OptionDescription> options;  ///< a deque: options are added while others are in use
  std::vector<ProgramDescription> commands;
  std::string footer;
  bool runs_program = false;  ///< the first argument is a program, with arguments of its own
};

/// The text behind the program's name: `usage`, or "[options] [argument]…".
[[nodiscard]] std::string usage_of(const ProgramDescription& program);

/// The titles of the options' groups, in their order.
[[nodiscard]] std::vector<std::string> group_titles(const ProgramDescription& program);

/// True if --help shows a part of the options, so that there is --help-all.
[[nodiscard]] bool has_short_help(const ProgramDescription& program);
/// The text of --help, in lines of at most 80 columns: every option, its group, and the footer.
[[nodiscard]] std::string help_text(const ProgramDescription& program);
/// The text of --help of a program with common options: those, and the commands, without titles.
[[nodiscard]] std::string short_help_text(const ProgramDescription& program);

/// The manual page, section 1, in the man macros of roff.
[[nodiscard]] std::string manual_page(const ProgramDescription& program,
                                      const std::string& version);

/// Completion scripts. `program` has no slash in its name.
[[nodiscard]] std::string bash_completion(const ProgramDescription& program);
[[nodiscard]] std::string zsh_completion(const ProgramDescription& program);

}  // namespace gantry
