#include "command_line/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

namespace gantry {
namespace {

// CLI11's own check lets nan pass, and answers with 309 digits.
std::string problem_unless_positive(const std::string& text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, status] = std::from_chars(text.data(), last, value);
  if (status == std::errc{} && end == last && value > 0 && std::isfinite(value)) return {};
  return fmt::format("expected a number greater than 0, but got '{}'", text);
}

}  // namespace

CommandLineOption& CommandLineOption::range(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

CommandLineOption& CommandLineOption::greater_than_zero() {
  option_->check(CLI::Validator(problem_unless_positive, "> 0"));
  return *this;
}

CommandLineOption& CommandLineOption::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

CommandLineOption& CommandLineOption::required() {
  option_->required();
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
    : app_(std::make_unique<CLI::App>(description, program)) {}
CommandLine::~CommandLine() = default;

void CommandLine::set_footer(const std::string& text) { app_->footer(text); }

void CommandLine::set_name_columns(std::size_t columns) {
  app_->get_formatter()->column_width(columns);
}

void CommandLine::set_version(const std::string& text) {
  app_->set_version_flag("--version", text);
}

void CommandLine::stop_at_first_argument() { app_->prefix_command(); }

CommandLineOption CommandLine::add_flag(const std::string& names, bool& value,
                                        const std::string& help) {
  return CommandLineOption(*app_->add_flag(names, value, help));
}

template <class Value>
CommandLineOption CommandLine::add_option(const std::string& names, Value& value,
                                          const std::string& help) {
  return CommandLineOption(*app_->add_option(names, value, help));
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
INSTANTIATE(std::vector<std::string>);
INSTANTIATE(std::vector<int>);
#undef INSTANTIATE

std::string CommandLine::parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  try {
    app_->parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return app_->help();
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
