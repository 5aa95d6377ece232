#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "core/env/env_check.hpp"
#include "core/files/output_file.hpp"
#include "core/files/output_stream.hpp"
#include "core/text/escaped_text.hpp"
#include "launcher/commands/check_command.hpp"
#include "launcher/commands/parse_options.hpp"
#include "launcher/commands/shim.hpp"
#include "launcher/failures/dump.hpp"
#include "launcher/failures/report.hpp"
#include "launcher/hosts/delegation.hpp"
#include "launcher/options/options.hpp"
#include "launcher/placement/gpu_claims.hpp"
#include "launcher/placement/plan.hpp"
#include "launcher/processes/supervisor.hpp"
#include "launcher/topo/topo_command.hpp"

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

machine::TopologyOptions topology_options(const Options& options) {
  machine::TopologyOptions where = machine::topology_options_from_environment();
  if (options.topo_file) where.file = *options.topo_file;
  return where;
}

// Loading hwloc's plugins takes longer than starting a rank, and most of them are for GPUs' own
// runtimes, which are not asked here. Ranks do not inherit the choice.
void choose_hwloc_plugins(const machine::TopologyOptions& where) {
  std::string unused =
      "hwloc_cuda.so,hwloc_gl.so,hwloc_levelzero.so,hwloc_nvml.so,hwloc_opencl.so,hwloc_rsmi.so";
  // hwloc reads its own files without the plugin, but not those with comments, for example.
  const bool reads_file = !where.file.empty() || env::get("HWLOC_XMLFILE").has_value();
  if (!reads_file) unused += ",hwloc_xml_libxml.so";
  const bool needs_devices = !where.skip_gpus && where.simulated_gpus == 0;
  if (!reads_file && !needs_devices) unused += ",hwloc_pci.so";
  setenv("HWLOC_PLUGINS_BLACKLIST", unused.c_str(), 0);
}

Machine look_at_machine(const Options& options, const Environment& environment) {
  Machine machine;
  machine::TopologyOptions where = topology_options(options);
  where.skip_gpus = options.cpu_only;
  choose_hwloc_plugins(where);
  const machine::PlanOptions& placement = options.placement;
  where.skip_links = placement.gpus != machine::GpuChoice::best &&
                     placement.gpus != machine::GpuChoice::idle &&
                     placement.order != machine::RankOrder::ring;
  machine.inventory = discover_devices(where, [&](const char* name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  });
  machine.host = machine.inventory.machine.host;
  return machine;
}

// Prints what was asked for. Throws: Error if it does not arrive.
void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw Error(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
  }
}

// Prints the error if stderr works; the exit code reports it, too.
void complain(const std::exception& error) noexcept {
  std::string text;
  try {
    text = escape_control_characters(error.what(), LineEnds::keep);
  } catch (const std::exception&) {
    text = "out of memory";
  }
  std::fprintf(stderr, "glaunch: %s\n", text.c_str());
}

// The path of this program.
std::string own_path() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "glaunch" : path.string();
}

// The job on several machines, if it is one.
std::optional<Delegation> find_delegation(const Options& options, const Environment& environment) {
  std::vector<Host> hosts = job_hosts(options, environment);
  if (hosts.empty()) return std::nullopt;
  int ranks_per_host = 0;
  if (!hosts.front().ranks && !options.ranks) {
    // The machines are taken to be like this one.
    ranks_per_host = static_cast<int>(
        make_plan(options, look_at_machine(options, environment), environment).ranks.size());
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

int run_job(const Options& options, const Plan& plan, const Environment& environment) {
  std::optional<OutputStream> report;
  const auto report_failure = [&](std::string_view cause) {
    return fmt::format("--report: cannot write '{}': {}", *options.report, cause);
  };
  if (options.report) {
    // A report that cannot be written is better known before the job than after it.
    OutputFile opened = open_output(*options.report);
    if (!opened.ok()) throw Error(report_failure(opened.problem));
    report.emplace(std::move(opened.file));
  }
  Options kept = options;
  if (options.tee && !options.log_dir) kept.log_dir = new_log_directory();
  Supervisor supervisor(kept, plan, environment);
  if (options.tee) supervisor.message(fmt::format("output of each rank: {}", *kept.log_dir));
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

// Throws: InvalidArgument for a GANTRY_LOG with which no rank could start.
void check_environment() {
  static_cast<void>(logging::level());
  for (const std::string& sentence : env::misspelled_names()) {
    std::fprintf(stderr, "glaunch: warning: %s\n", escape_control_characters(sentence).c_str());
  }
}

int run(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  for (const std::string& note : options.notes) {
    std::fprintf(stderr, "glaunch: note: %s\n", escape_control_characters(note).c_str());
  }
  // As if they stood in front of glaunch: the planner and the dump read them, too.
  for (const Variable& variable : options.exports) {
    setenv(variable.name.c_str(), variable.value.c_str(), 1);
  }
  const bool starts_or_looks = options.action == Action::run || options.action == Action::dry_run ||
                               options.action == Action::topo || options.action == Action::check;
  if (starts_or_looks) check_environment();
  const Environment environment = current_environment();
  switch (options.action) {
    case Action::inform:
      print(options.text);
      return 0;
    case Action::environment:
      print(describe_environment(environment, options.json));
      return 0;
    case Action::dump:
      if (options.follow) {
        follow_dump(options.dump, options.interval, isatty(STDOUT_FILENO) == 1, print);
      } else {
        print(dump(options.dump));
      }
      return 0;
    case Action::shim:
      return run_shim(options, look_at_machine(options, environment), environment);
    case Action::topo:
      print(describe_topology(machine::discover_topology(topology_options(options)), options.topo));
      return 0;
    case Action::check: {
      const CheckReport report = check_machine(topology_options(options), options.check);
      print(report.text);
      return report.exit_code;
    }
    case Action::dry_run: {
      std::string text;
      try {
        if (const auto delegation = find_delegation(options, environment)) {
          print(describe_delegation(*delegation, options.json));
          return 0;
        }
        GpuClaims claims;
        const Plan plan =
            make_claimed_plan(options, look_at_machine(options, environment), environment, claims);
        text = describe_plan(plan, environment, options.json);
      } catch (const Error& error) {
        complain(error);
        return kBadPlan;
      }
      print(text);
      return 0;
    }
    case Action::run:
      break;
  }
  if (const auto delegation = find_delegation(options, environment)) {
    Options whole = options;
    whole.prefix.reset();  // that is the other launcher's affair
    return run_job(whole, plan_of(*delegation), environment);
  }
  GpuClaims claims;  // until the job is over
  const Plan plan =
      make_claimed_plan(options, look_at_machine(options, environment), environment, claims);
  return run_job(options, plan, environment);
}

}  // namespace
}  // namespace gantry::launcher

int main(int argc, char** argv) {
  gantry::launcher::open_standard_streams();
  try {
    return gantry::launcher::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    gantry::launcher::complain(error);
    return gantry::launcher::kOwnError;
  }
}
