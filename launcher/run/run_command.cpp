#include "launcher/run/run_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/files/output_file.hpp"
#include "core/files/output_stream.hpp"
#include "core/text/escaped_text.hpp"
#include "launcher/run/failures/report.hpp"
#include "launcher/run/hosts/delegation.hpp"
#include "launcher/run/job_line.hpp"
#include "launcher/run/plan/gpu_claims.hpp"
#include "launcher/run/plan/plan.hpp"
#include "launcher/run/processes/supervisor.hpp"

namespace gantry::launcher {
namespace {

constexpr int kBadPlan = 2;

// The path of this program.
std::string own_path() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "glaunch" : path.string();
}

// The job on several machines, if it is one.
std::optional<Delegation> find_delegation(const JobOptions& options,
                                          const Environment& environment) {
  std::vector<Host> hosts = job_hosts(options, environment);
  if (hosts.empty()) return std::nullopt;
  int ranks_per_host = 0;
  if (!hosts.front().ranks && !options.placement.ranks) {
    // The machines are taken to be like this one.
    ranks_per_host = static_cast<int>(
        make_plan(options, discover_machine(options.placement, environment), environment)
            .ranks.size());
  }
  return make_delegation(options, environment, std::move(hosts), ranks_per_host, own_path());
}

// "glaunch-20260131-235959-1234": one for each job, by its time and process.
std::string new_log_directory() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  (void)std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &parts);
  return fmt::format("glaunch-{}-{}", text.data(), getpid());
}

int supervise(const JobOptions& options, const Plan& plan, const Environment& environment) {
  std::optional<OutputStream> report;
  const auto report_failure = [&](std::string_view cause) {
    return fmt::format("--report: cannot write '{}': {}", *options.failure.report, cause);
  };
  if (options.failure.report) {
    // A report that cannot be written is better known before the job than after it.
    OutputFile opened = open_output(*options.failure.report);
    if (!opened.ok()) throw Error(report_failure(opened.problem));
    report.emplace(std::move(opened.file));
  }
  JobOptions kept = options;
  if (options.output.tee && !options.output.log_dir) kept.output.log_dir = new_log_directory();
  Supervisor supervisor(kept, plan, environment);
  if (options.output.tee)
    supervisor.message(fmt::format("output of each rank: {}", *kept.output.log_dir));
  if (plan.delegation) {
    if (const std::string& variable = plan.delegation->dropped_variable; !variable.empty()) {
      supervisor.message(fmt::format(
          "ignoring {}, with which mpirun starts ranks on this machine only", variable));
    }
    supervisor.message(shell_text(plan.delegation->command));
  }
  for (const std::string& warning : plan.warnings) supervisor.message("warning: " + warning);
  const JobResult result = supervisor.run();
  supervisor.report(describe_failure(result));
  if (report) {
    *report << report_json(result, plan);
    if (const int code = report->close(); code != 0) {
      supervisor.message("warning: " + report_failure(std::strerror(code)));
    }
  }
  supervisor.drain();
  return result.exit_code();
}

// Prints the plan. Returns the exit code.
int dry_run(const JobOptions& options, const Environment& environment) {
  std::string text;
  try {
    if (const auto delegation = find_delegation(options, environment)) {
      text = describe_delegation(*delegation, options.json);
    } else {
      GpuClaims claims;
      const Machine machine = discover_machine(options.placement, environment);
      text = describe_plan(make_claimed_plan(options, machine, environment, claims), environment,
                           options.json);
    }
  } catch (const Error& error) {
    print_error(error);
    return kBadPlan;
  }
  print(text);
  return 0;
}

std::vector<ProgramDescription> describe_all(std::span<const Command> commands) {
  std::vector<ProgramDescription> described;
  for (const Command& command : commands) described.push_back(command.describe());
  return described;
}

}  // namespace

int run_job(const std::vector<std::string>& arguments, std::span<const Command> commands) {
  const JobOptions options = parse_job(arguments, describe_all(commands));
  if (!options.help.empty()) {
    print(options.help);
    return 0;
  }
  for (const std::string& note : options.notes) {
    std::fprintf(stderr, "glaunch: note: %s\n", escape_control_characters(note).c_str());
  }
  // As if they stood in front of glaunch: the planner reads them, too.
  for (const Variable& variable : options.exports) {
    setenv(variable.name.c_str(), variable.value.c_str(), 1);
  }
  check_environment();
  const Environment environment = current_environment();
  if (options.dry_run) return dry_run(options, environment);
  if (const auto delegation = find_delegation(options, environment)) {
    JobOptions whole = options;
    whole.output.prefix.reset();  // the other launcher marks the lines
    return supervise(whole, plan_of(*delegation), environment);
  }
  GpuClaims claims;  // until the job is over
  const Plan plan = make_claimed_plan(options, discover_machine(options.placement, environment),
                                      environment, claims);
  return supervise(options, plan, environment);
}

}  // namespace gantry::launcher
