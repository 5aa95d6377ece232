#include "tools/top/options.hpp"

#include <fmt/format.h>

#include <cmath>

#include <gantry/core/error.hpp>

#include "command_line/command_line.hpp"

namespace gantry::top {
namespace {

constexpr double kLeastSeconds = 0.05;
constexpr double kMostSeconds = 86400;

constexpr const char* kFooter = R"(
  gantry-top                 # a table that q or Ctrl-C ends
  gantry-top --once          # prints the table; lines are cut on a terminal only
  gantry-top --once --json   # for scripts; without --once a line for each refresh

Devices are those that NVML shows and those of running jobs. Jobs are this user's.

Exit code: 0; 2 for errors.)";

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  double seconds = 1;
  CommandLine line("Shows the machine's devices and this user's running jobs.", "gantry-top");
  line.set_footer(kFooter);
  line.add_option("-i,--interval", seconds, "seconds from one refresh to the next (1)")
      .value("SECONDS")
      .greater_than_zero();
  line.add_flag("--once", options.once, "prints once and ends");
  line.add_flag("--json", options.json, "prints JSON");
  options.text = line.parse(arguments);
  if (seconds < kLeastSeconds || seconds > kMostSeconds) {
    throw InvalidArgument(fmt::format("--interval: expected seconds from {} to {}, but got {}",
                                      kLeastSeconds, kMostSeconds, seconds));
  }
  options.interval = std::chrono::milliseconds(std::llround(seconds * 1000));
  return options;
}

}  // namespace gantry::top
