#include "launcher/command/option_values.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <cstdint>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

namespace gantry::launcher {
namespace {

constexpr std::int64_t kMaxSeconds = 366LL * 24 * 3600;

}  // namespace

std::chrono::milliseconds parse_duration(std::string_view text, std::string_view what) {
  const auto digits =
      std::find_if_not(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }) -
      text.begin();
  const std::string_view number = text.substr(0, static_cast<std::size_t>(digits));
  const std::string_view unit = text.substr(static_cast<std::size_t>(digits));
  std::int64_t scale = 0;
  if (unit == "ms") scale = 1;
  if (unit == "s" || unit.empty()) scale = 1000;
  if (unit == "m") scale = 60'000;
  if (unit == "h") scale = 3'600'000;
  if (number.empty() || number.size() > 10 || scale == 0) {
    throw InvalidArgument(fmt::format(
        "{}: expected a duration such as 300ms, 15s, 2m or 1h, but got '{}'", what, text));
  }
  const std::int64_t value = env::parse_int(number, what, 0, kMaxSeconds * 1000 / scale);
  return std::chrono::milliseconds(value * scale);
}

std::vector<int> parse_signals(std::string_view text) {
  std::vector<int> result;
  do {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view name = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (name.starts_with("SIG")) name.remove_prefix(3);
    int number = 0;
    for (int signal = 1; signal < NSIG && number == 0; ++signal) {
      const char* known = sigabbrev_np(signal);
      if ((known != nullptr && name == known) || name == std::to_string(signal)) number = signal;
    }
    const bool reserved = number == SIGKILL || number == SIGSTOP || number == SIGCHLD ||
                          number == SIGINT || number == SIGTERM || number == SIGHUP ||
                          number == SIGQUIT || number == SIGPIPE || number == SIGTSTP ||
                          number == SIGCONT;
    if (number == 0 || reserved) {
      throw InvalidArgument(
          fmt::format("--forward: expected signals such as USR1,USR2, but got '{}'{}", name,
                      reserved ? " (glaunch handles that one itself)" : ""));
    }
    result.push_back(number);
  } while (!text.empty());
  return result;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

}  // namespace gantry::launcher
