// What the command lines of the tools have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

namespace gantry {

/// Reads `arguments` into what `app` binds; returns the help if they ask for it, else nothing.
/// Throws: InvalidArgument in CLI11's words.
inline std::string parse_command_line(CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  }
  return {};
}

/// Takes numbers greater than 0. CLI11's own check lets nan pass, and answers with 309 digits.
inline CLI::Validator greater_than_zero() {
  const auto check = [](const std::string& text) -> std::string {
    double value = 0;
    const char* const last = text.data() + text.size();
    const auto [end, status] = std::from_chars(text.data(), last, value);
    if (status == std::errc{} && end == last && value > 0 && std::isfinite(value)) return {};
    return "expected a number greater than 0, but got '" + text + "'";
  };
  return {check, "> 0"};
}

/// A byte count that a signed number holds; `what` names it in the error. Throws: InvalidArgument.
inline std::int64_t parse_size(const std::string& text, const std::string& what) {
  const std::size_t bytes = env::parse_bytes(text, what);
  if (bytes > std::size_t{std::numeric_limits<std::int64_t>::max()}) {
    throw InvalidArgument(what + ": expected less than 2^63 bytes, but got '" + text + "'");
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace gantry
