#include "launcher/run/options/failure_line.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

#include "launcher/command/option_values.hpp"
#include "launcher/run/options/placement_options.hpp"

namespace gantry::launcher {
namespace {

using std::chrono::milliseconds;

// Replacements of an elastic job, unless --max-restarts says otherwise.
constexpr int kDefaultReplacements = 100;

// "2:4".
ElasticRange parse_elastic(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    throw InvalidArgument(
        fmt::format("--elastic: expected MIN:MAX ranks, such as 2:4, but got '{}'", text));
  }
  const auto read = [&](std::string_view part, std::int64_t least) {
    return static_cast<int>(env::parse_int(part, "--elastic", least, kMaxRanks));
  };
  const ElasticRange range{read(text.substr(0, colon), 1), read(text.substr(colon + 1), 2)};
  if (range.fewest > range.most) {
    throw InvalidArgument(fmt::format(
        "--elastic: expected MIN:MAX with at most MAX ranks as MIN, but got '{}'", text));
  }
  return range;
}

// The time of an option that is given.
std::optional<milliseconds> read_limit(const std::optional<std::string>& text, const char* name) {
  if (!text) return std::nullopt;
  const milliseconds limit = parse_duration(*text, name);
  if (limit.count() == 0) throw InvalidArgument(fmt::format("{}: expected more than 0", name));
  return limit;
}

}  // namespace

FailureLine::FailureLine(CommandLine& line, FailureOptions& options, int& tail)
    : options_(options) {
  line.add_option("--tail", tail, "lines shown of a rank that failed (20)").range(0, 100000);
  line.add_option("--grace", grace_, "time between SIGTERM and SIGKILL (15s)").value("TIME");
  line.add_option("--timeout", timeout_, "stop the job after this time").value("TIME");
  line.add_option("--init-timeout", init_timeout_, "stop unless all ranks are in world() by then")
      .value("TIME");
  line.add_option("--stall-timeout", stall_timeout_, "stop when no rank gets further in a call")
      .value("TIME");
  line.add_option("--forward", forward_, "signals for the ranks, such as USR1,USR2")
      .value("SIGNALS");
  line.add_flag("--keep-going", options.keep_going, "do not stop the others when a rank fails");
  line.add_option("--elastic", elastic_, "replace ranks that fail while MIN of MAX are left")
      .value("MIN:MAX");
  line.add_option("--max-restarts", max_restarts_,
                  "restarts of the job (0), of elastic ranks (100)")
      .range(0, 1'000'000);
  line.add_option("--restart-delay", restart_delay_, "pause before, doubled each time (1s)")
      .value("TIME");
  line.add_option("--report", options.report, "write what happened to a JSON file")
      .value("FILE", ValueKind::file);
}

void FailureLine::read_elastic() const {
  options_.elastic = parse_elastic(*elastic_);
  if (options_.keep_going) {
    throw InvalidArgument("--keep-going and --elastic contradict each other");
  }
  if (!max_restarts_) options_.max_restarts = kDefaultReplacements;
}

void FailureLine::read() const {
  if (grace_) options_.grace = parse_duration(*grace_, "--grace");
  options_.timeout = read_limit(timeout_, "--timeout");
  options_.init_timeout = read_limit(init_timeout_, "--init-timeout");
  options_.stall_timeout = read_limit(stall_timeout_, "--stall-timeout");
  options_.max_restarts = max_restarts_.value_or(0);
  if (elastic_) read_elastic();
  if (restart_delay_) {
    if (options_.max_restarts == 0) {
      throw InvalidArgument("--restart-delay needs --max-restarts or --elastic");
    }
    options_.restart_delay = parse_duration(*restart_delay_, "--restart-delay");
  }
  if (options_.keep_going && options_.max_restarts > 0) {
    throw InvalidArgument("--keep-going and --max-restarts contradict each other");
  }
  if (forward_) options_.forward = parse_signals(*forward_);
}

}  // namespace gantry::launcher
