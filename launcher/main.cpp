#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>

#include "launcher/cgroup.hpp"
#include "launcher/dump.hpp"
#include "launcher/options.hpp"
#include "launcher/plan.hpp"
#include "launcher/report.hpp"
#include "launcher/supervisor.hpp"

namespace gantry::launcher {
namespace {

constexpr int kOwnError = 125;
constexpr int kBadPlan = 2;

// A pipe that took the number of a closed standard stream would be mistaken for it.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      const int null = open("/dev/null", O_RDWR);
      if (null >= 0 && null != fd) dup2(null, fd);
    }
  }
}

Machine look_at_machine(const Options& options, const Environment& environment) {
  Machine machine;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) machine.host = host.data();
  machine.cpus = allowed_cpus();
  if (!options.cpu_only) {
    machine.inventory = discover_devices([&](const char* name) -> std::optional<std::string> {
      const auto found = environment.find(name);
      if (found == environment.end()) return std::nullopt;
      return found->second;
    });
  }
  return machine;
}

int run_job(const Options& options, const Plan& plan, const Environment& environment) {
  std::optional<std::ofstream> report;
  if (options.report) {
    // A report that cannot be written is better known before the job than after it.
    report.emplace(*options.report, std::ios::binary | std::ios::trunc);
    if (!*report) {
      throw Error(
          fmt::format("--report: cannot write '{}': {}", *options.report, std::strerror(errno)));
    }
  }
  Supervisor supervisor(options, plan, environment);
  for (const std::string& warning : plan.warnings) supervisor.message("warning: " + warning);
  const JobResult result = supervisor.run();
  for (const std::string& line : describe_failure(result)) supervisor.message(line);
  if (report && !(*report << report_json(result, plan) << std::flush)) {
    supervisor.message(fmt::format("warning: --report: cannot write '{}': {}", *options.report,
                                   std::strerror(errno)));
  }
  supervisor.drain();
  return result.exit_code();
}

int run(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  const Environment environment = current_environment();
  switch (options.action) {
    case Action::inform:
      fmt::print("{}", options.text);
      return 0;
    case Action::environment:
      fmt::print("{}", describe_environment(environment, options.json));
      return 0;
    case Action::dump:
      fmt::print("{}", dump(options.target, options.clear, options.json));
      return 0;
    case Action::dry_run:
      try {
        const Plan plan = make_plan(options, look_at_machine(options, environment), environment);
        fmt::print("{}", describe_plan(plan, environment, options.json));
        return 0;
      } catch (const Error& error) {
        fmt::print(stderr, "glaunch: {}\n", error.what());
        return kBadPlan;
      }
    case Action::run:
      break;
  }
  const Plan plan = make_plan(options, look_at_machine(options, environment), environment);
  return run_job(options, plan, environment);
}

}  // namespace
}  // namespace gantry::launcher

int main(int argc, char** argv) {
  gantry::launcher::open_standard_streams();
  try {
    return gantry::launcher::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "glaunch: {}\n", error.what());
    return gantry::launcher::kOwnError;
  }
}
