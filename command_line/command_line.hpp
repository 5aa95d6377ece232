// Command lines of the programs. CLI11, whose headers take long to compile, stays behind this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "command_line/description.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gantry {

/// One option of a CommandLine, valid as long as that lives.
class CommandLineOption {
 public:
  CommandLineOption(CLI::Option& option, OptionDescription& description)
      : option_(&option), description_(&description) {}

  /// Names the value in the help: "N", "FILE". Shells complete it as a `kind`.
  CommandLineOption& value(const std::string& name, ValueKind kind = ValueKind::text);

  /// Allows integers from `least` to `most`, for an option of integers.
  CommandLineOption& range(int least, int most);
  /// Allows finite numbers greater than 0, for an option of fractions.
  CommandLineOption& greater_than_zero();
  CommandLineOption& one_of(const std::vector<std::string>& values);
  CommandLineOption& required();
  /// Takes one argument each time, of a list: `-o a -o b`.
  CommandLineOption& repeatable();
  /// As repeatable(), and an argument may hold several values: `-o a,b`.
  CommandLineOption& comma_separated();
  /// Accepts the option without showing it.
  CommandLineOption& hidden();
  /// Refuses the option beside `other`.
  CommandLineOption& excludes(const CommandLineOption& other);
  /// Refuses the option without `other`.
  CommandLineOption& needs(const CommandLineOption& other);

  /// True if it was on the command line that was parsed.
  [[nodiscard]] bool is_given() const;

 private:
  CLI::Option* option_;
  OptionDescription* description_;
};

/// The options of a program and its help. What options set must outlive it.
class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& program);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  /// The text behind the program's name in the help's first line.
  void set_usage(const std::string& text);
  /// The end of the help.
  void set_footer(const std::string& text);
  /// Puts the options that are added from now on under a title.
  void begin_group(const std::string& title);
  /// Shows these options in --help, by one name each, and all options in --help-all.
  void set_common(const std::vector<std::string>& names);
  /// Lists a command of this program, such as `glaunch dump`, in help, manual and completion.
  void add_command(const ProgramDescription& command);
  /// Accepts `alias`, such as "-np", for the option `name`. The help does not show it.
  void add_alias(const std::string& alias, const std::string& name);
  /// The hint for the unknown option `name`, in place of a similar name: "use -n N".
  /// Underscores in what was typed count as dashes.
  void add_hint(const std::string& name, const std::string& hint);
  /// Ends the options at the first argument that is none, such as a program's name: see rest().
  void stop_at_first_argument();

  /// Adds an option without a value. `names`: "-q,--quiet".
  CommandLineOption add_flag(const std::string& names, bool& value, const std::string& help);
  /// Adds an option with a value. A name without dashes is an argument's. Value: std::string, int,
  /// double, bool, std::optional of the first three, std::vector<std::string> or std::vector<int>.
  /// Numbers are decimal: 0x10, 1_0 and +1 are errors.
  template <class Value>
  CommandLineOption add_option(const std::string& names, Value& value, const std::string& help);

  /// Reads the arguments after the program's name. Returns the text of --help, --help-all,
  /// --version or --generate man|bash|zsh if one is there, else nothing. Throws: InvalidArgument;
  /// except for numbers in CLI11's words.
  [[nodiscard]] std::string parse(const std::vector<std::string>& arguments);
  /// The arguments from the one where the options ended.
  [[nodiscard]] std::vector<std::string> rest() const;
  /// The options so far, and those that every program has.
  [[nodiscard]] ProgramDescription description() const;

 private:
  OptionDescription& describe(const std::string& names, const std::string& help);
  bool takes_value(const std::string& name) const;
  void refuse_with_hint(const std::string& name) const;
  std::string generate(const std::string& kind) const;
  std::vector<std::string> with_known_names(const std::vector<std::string>& arguments) const;

  std::unique_ptr<CLI::App> app_;
  ProgramDescription description_;
  std::string group_;
  std::map<std::string, std::string> aliases_;
  std::map<std::string, std::string> hints_;
};

/// The byte count in `text`, which a signed number holds; `what` names it in the error.
/// Throws: InvalidArgument.
[[nodiscard]] std::int64_t parse_size(const std::string& text, const std::string& what);

}  // namespace gantry
