#include "launcher/check/check_command.hpp"

#include "command_line/command_line.hpp"
#include "launcher/command/option_values.hpp"
#include "launcher/run/options/placement_options.hpp"

namespace gantry::launcher {
namespace {

constexpr const char* kFooter = R"(
Exit code: 0 without a warning, 1 with one, 2 with an error, 125 if the check
itself fails. To start a program called check: glaunch -- check)";

struct CheckLine {
  CommandLine line{"Looks for what keeps jobs from running well.", "glaunch check"};
  CheckOptions options;
  std::optional<std::string> deadline;

  CheckLine() {
    line.set_footer(kFooter);
    line.add_option("-n,--ranks", options.request.ranks, "ranks of the job (one per device)")
        .range(1, kMaxRanks);
    line.add_option("--topo-file", options.topo_file,
                    "facts about the machine: JSON, or hwloc's or NCCL's XML")
        .value("FILE", ValueKind::file);
    line.add_flag("--full", options.request.full, "measure the bandwidths of devices");
    line.add_option("--deadline", deadline, "with --full: time of one measurement (30s)")
        .value("TIME");
    line.add_flag("--json", options.request.json, "print JSON");
  }

  void read() {
    if (!deadline) return;
    if (!options.request.full) throw InvalidArgument("--deadline needs --full");
    options.request.deadline = parse_duration(*deadline, "--deadline");
    if (options.request.deadline.count() == 0) {
      throw InvalidArgument("--deadline: expected more than 0");
    }
  }
};

ProgramDescription describe() { return CheckLine().line.description(); }

int run(const std::vector<std::string>& arguments) {
  const CheckOptions options = parse_check(arguments);
  if (!options.help.empty()) {
    print(options.help);
    return 0;
  }
  check_environment();
  const CheckReport report = check_machine(topology_options(options.topo_file), options.request);
  print(report.text);
  return report.exit_code;
}

}  // namespace

CheckOptions parse_check(const std::vector<std::string>& arguments) {
  return parse_as("check", [&] {
    CheckLine check;
    check.options.help = check.line.parse(arguments);
    if (check.options.help.empty()) check.read();
    return check.options;
  });
}

const Command kCheckCommand{"check", describe, run};

}  // namespace gantry::launcher
