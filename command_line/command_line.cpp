#include "command_line/command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

#include "command_line/version.hpp"
#include "core/text/nearest_name.hpp"

namespace gantry {
namespace {

constexpr const char* kGenerate = "--generate";
constexpr const char* kHelpAll = "--help-all";

template <class Value>
constexpr const char* kValueName = "TEXT";
template <>
constexpr const char* kValueName<int> = "N";
template <>
constexpr const char* kValueName<bool> = "0|1";
template <>
constexpr const char* kValueName<double> = "X";
template <class Element>
constexpr const char* kValueName<std::optional<Element>> = kValueName<Element>;
template <class Element>
constexpr const char* kValueName<std::vector<Element>> = kValueName<Element>;

template <class Value>
constexpr bool kIsWholeNumber = false;
template <>
constexpr bool kIsWholeNumber<int> = true;
template <class Element>
constexpr bool kIsWholeNumber<std::optional<Element>> = kIsWholeNumber<Element>;
template <class Element>
constexpr bool kIsWholeNumber<std::vector<Element>> = kIsWholeNumber<Element>;

template <class Value>
constexpr bool kIsNumber =
    std::is_same_v<Value, double> || std::is_same_v<Value, std::optional<double>>;

constexpr const char* kNumber = "number";  // the name of an option's check of its numbers

// Numbers are checked here, before CLI11 converts them. CLI11 2.4 takes 1_0, 0b11 and true for
// integers where 2.3 does not, and the texts about ranges differ. CLI11 gets plain decimal digits.
auto whole_number(const CLI::Option& option, int least, int most) {
  return [&option, least, most](std::string& text) {
    text = std::to_string(env::parse_int(text, option.get_name(), least, most));
    return std::string();
  };
}

std::optional<double> parse_number(const std::string& text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, status] = std::from_chars(text.data(), last, value);
  if (status == std::errc{} && end == last) return value;
  return std::nullopt;
}

std::string problem_unless_number(const std::string& text) {
  return parse_number(text) ? "" : fmt::format("expected a number, but got '{}'", text);
}

// CLI11's own check lets nan pass, and its text has 309 digits.
std::string problem_unless_positive(const std::string& text) {
  const std::optional<double> value = parse_number(text);
  if (value && *value > 0 && std::isfinite(*value)) return {};
  return fmt::format("expected a number greater than 0, but got '{}'", text);
}

}  // namespace

CommandLineOption& CommandLineOption::value(const std::string& name, ValueKind kind) {
  description_->value = name;
  description_->kind = kind;
  return *this;
}

CommandLineOption& CommandLineOption::range(int least, int most) {
  option_->get_validator(kNumber)->operation(whole_number(*option_, least, most));
  return *this;
}

CommandLineOption& CommandLineOption::greater_than_zero() {
  option_->get_validator(kNumber)->operation(problem_unless_positive);
  return *this;
}

CommandLineOption& CommandLineOption::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  description_->choices = values;
  description_->value = fmt::format("{}", fmt::join(values, "|"));
  return *this;
}

CommandLineOption& CommandLineOption::hidden() {
  description_->hidden = true;
  return *this;
}

CommandLineOption& CommandLineOption::required() {
  option_->required();
  description_->required = true;
  return *this;
}

CommandLineOption& CommandLineOption::repeatable() {
  option_->allow_extra_args(false);
  return *this;
}

CommandLineOption& CommandLineOption::comma_separated() {
  option_->delimiter(',');
  return repeatable();
}

CommandLineOption& CommandLineOption::excludes(const CommandLineOption& other) {
  option_->excludes(other.option_);
  return *this;
}

CommandLineOption& CommandLineOption::needs(const CommandLineOption& other) {
  option_->needs(other.option_);
  return *this;
}

bool CommandLineOption::is_given() const { return option_->count() != 0; }

CommandLine::CommandLine(const std::string& description, const std::string& program)
    : app_(std::make_unique<CLI::App>(description, program)) {
  description_.name = program;
  description_.summary = description;
  app_->set_version_flag("--version",
                         fmt::format("{} {}", program.substr(0, program.find(' ')), kVersion));
}
CommandLine::~CommandLine() = default;

void CommandLine::set_usage(const std::string& text) { description_.usage = text; }

void CommandLine::set_footer(const std::string& text) {
  description_.footer = text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

void CommandLine::begin_group(const std::string& title) { group_ = title; }

void CommandLine::add_command(const ProgramDescription& command) {
  description_.commands.push_back(command);
}

void CommandLine::add_alias(const std::string& alias, const std::string& name) {
  aliases_[alias] = name;
}

void CommandLine::stop_at_first_argument() {
  app_->prefix_command();
  description_.runs_program = true;
}

OptionDescription& CommandLine::describe(const std::string& names, const std::string& help) {
  OptionDescription option;
  option.group = group_;
  option.help = help;
  if (names.starts_with('-')) {
    option.names = CLI::detail::split(names, ',');
  } else {
    option.value = names;
  }
  return description_.options.emplace_back(std::move(option));
}

CommandLineOption CommandLine::add_flag(const std::string& names, bool& value,
                                        const std::string& help) {
  return CommandLineOption(*app_->add_flag(names, value, help), describe(names, help));
}

template <class Value>
CommandLineOption CommandLine::add_option(const std::string& names, Value& value,
                                          const std::string& help) {
  CLI::Option& parsed = *app_->add_option(names, value, help);
  if constexpr (kIsWholeNumber<Value>) {
    using Limits = std::numeric_limits<int>;
    parsed.transform(
        CLI::Validator(whole_number(parsed, Limits::min(), Limits::max()), "", kNumber));
  } else if constexpr (kIsNumber<Value>) {
    parsed.check(CLI::Validator(problem_unless_number, "", kNumber));
  }
  CommandLineOption option(parsed, describe(names, help));
  if (names.starts_with('-')) option.value(kValueName<Value>);
  return option;
}

#define INSTANTIATE(...)                                                                           \
  template CommandLineOption CommandLine::add_option(const std::string& names, __VA_ARGS__& value, \
                                                     const std::string& help)
INSTANTIATE(std::string);
INSTANTIATE(int);
INSTANTIATE(double);
INSTANTIATE(bool);
INSTANTIATE(std::optional<int>);
INSTANTIATE(std::optional<double>);
INSTANTIATE(std::optional<std::string>);
INSTANTIATE(std::vector<std::string>);
INSTANTIATE(std::vector<int>);
#undef INSTANTIATE

ProgramDescription CommandLine::description() const {
  ProgramDescription program = description_;
  std::erase_if(program.options, [](const OptionDescription& option) { return option.hidden; });
  const bool is_short = has_short_help(program);
  program.options.push_back({.names = {"-h", "--help"}, .help = "print this", .common = is_short});
  if (is_short) {
    program.options.push_back({.names = {kHelpAll}, .help = "print every option", .common = true});
  }
  program.options.push_back(
      {.names = {"--version"}, .help = "print the version", .common = is_short});
  return program;
}

std::string CommandLine::generate(const std::string& kind) const {
  if (kind == "man") return manual_page(description(), kVersion);
  if (kind == "bash") return bash_completion(description());
  if (kind == "zsh") return zsh_completion(description());
  throw InvalidArgument(
      fmt::format("{}: expected man, bash or zsh, but got '{}'", kGenerate, kind));
}

void CommandLine::set_common(const std::vector<std::string>& names) {
  for (OptionDescription& option : description_.options) {
    option.common = std::find_first_of(option.names.begin(), option.names.end(), names.begin(),
                                       names.end()) != option.names.end();
  }
}

void CommandLine::add_hint(const std::string& name, const std::string& hint) {
  hints_.emplace(name, hint);
}

// Throws: InvalidArgument if there is a hint about this name.
void CommandLine::refuse_with_hint(const std::string& name) const {
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  const auto hint = hints_.find(dashed);
  if (hint == hints_.end()) return;
  throw InvalidArgument(fmt::format("unknown option '{}'; {}", name, hint->second));
}

bool CommandLine::takes_value(const std::string& name) const {
  const CLI::Option* const option = app_->get_option_no_throw(name);
  if (option != nullptr) return option->get_items_expected_max() > 0;
  refuse_with_hint(name);
  std::vector<std::string> names;
  for (const OptionDescription& known : description().options) {
    names.insert(names.end(), known.names.begin(), known.names.end());
  }
  for (const auto& [alias, meaning] : aliases_) names.push_back(alias);
  const std::optional<std::string> nearest = nearest_name(name, names);
  throw InvalidArgument(fmt::format("unknown option '{}'{}", name,
                                    nearest ? fmt::format(" (did you mean '{}'?)", *nearest) : ""));
}

// The arguments with aliases replaced. Throws: InvalidArgument for an unknown option.
std::vector<std::string> CommandLine::with_known_names(
    const std::vector<std::string>& arguments) const {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const bool is_option = argument.size() > 1 && argument.front() == '-' && argument != "--";
    if (!is_option && (argument == "--" || description_.runs_program)) {
      result.insert(result.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i),
                    arguments.end());
      return result;
    }
    if (!is_option) {
      result.push_back(argument);
      continue;
    }
    const std::size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    std::string rest = equals == std::string::npos ? "" : argument.substr(equals);
    if (const auto alias = aliases_.find(name); alias != aliases_.end()) {
      name = alias->second;
    } else if (!name.starts_with("--")) {
      refuse_with_hint(name);
      name = argument.substr(0, 2);
      rest = argument.substr(2);
    }
    const bool needs_next = takes_value(name) && rest.empty();
    result.push_back(name + rest);
    if (needs_next && i + 1 < arguments.size()) result.push_back(arguments[++i]);
  }
  return result;
}

std::string CommandLine::parse(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == kGenerate) return generate(arguments[1]);
  if (has_short_help(description_)) app_->set_help_all_flag(kHelpAll);
  std::vector<std::string> reversed = with_known_names(arguments);
  std::reverse(reversed.begin(), reversed.end());  // as CLI11 wants them
  try {
    app_->parse(reversed);
  } catch (const CLI::CallForHelp&) {
    const ProgramDescription program = description();
    return has_short_help(program) ? short_help_text(program) : help_text(program);
  } catch (const CLI::CallForAllHelp&) {
    return help_text(description());
  } catch (const CLI::CallForVersion&) {
    return app_->version() + "\n";
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  }
  return {};
}

std::vector<std::string> CommandLine::rest() const { return app_->remaining(); }

std::int64_t parse_size(const std::string& text, const std::string& what) {
  const std::size_t bytes = env::parse_bytes(text, what);
  if (bytes > std::size_t{std::numeric_limits<std::int64_t>::max()}) {
    throw InvalidArgument(
        fmt::format("{}: expected less than 2^63 bytes, but got '{}'", what, text));
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace gantry
