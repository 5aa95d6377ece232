#include "launcher/topo/topo_line.hpp"
#include "launcher/options/option_values.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "command_line/command_line.hpp"

namespace gantry::launcher {
namespace {

constexpr const char* kTopoFooter = R"(
Each fact comes from NVML, hwloc, sysfs, a file of NCCL or the file that is
given; what is unknown is a question mark. The JSON can be given to
--topo-file, here or on another machine.
To start a program called topo: glaunch -- topo)";

constexpr const char* kCheckFooter = R"(
Exit code: 0 without a warning, 1 with one, 2 with an error, 125 if the check
itself fails. To start a program called check: glaunch -- check)";

struct TopoLine {
  CommandLine line{"Prints GPUs, processors, interfaces and links.", "glaunch topo"};
  bool tree = false;
  bool json = false;
  bool svg = false;
  std::string topo_file;
  CommandLineOption topo_file_option;

  explicit TopoLine(Options& options)
      : topo_file_option(line.add_option("--topo-file", topo_file,
                                         "facts about the machine: JSON, or hwloc's or NCCL's XML")
                             .value("FILE", ValueKind::file)) {
    line.set_footer(kTopoFooter);
    line.add_flag("--tree", tree, "print a tree of PCI bridges");
    line.add_flag("--json", json, "print JSON");
    line.add_flag("--svg", svg, "print a picture");
    line.add_flag("--redact", options.topo.redact, "with --json: no names and no UUIDs");
  }
};

struct CheckLine {
  CommandLine line{"Looks for what keeps jobs from running well.", "glaunch check"};
  int ranks = 0;
  std::string topo_file;
  std::string deadline;
  CommandLineOption ranks_option;
  CommandLineOption topo_file_option;

  explicit CheckLine(Options& options)
      : ranks_option(line.add_option("-n,--ranks", ranks, "ranks of the job (one per device)")
                         .range(1, kMaxRanks)),
        topo_file_option(line.add_option("--topo-file", topo_file,
                                         "facts about the machine: JSON, or hwloc's or NCCL's XML")
                             .value("FILE", ValueKind::file)) {
    line.set_footer(kCheckFooter);
    line.add_flag("--full", options.check.full, "measure the bandwidths of devices");
    line.add_option("--deadline", deadline, "with --full: time of one measurement (30s)")
        .value("TIME");
    line.add_flag("--json", options.check.json, "print JSON");
  }
};

void read_topo(const TopoLine& topo, Options& options) {
  if (static_cast<int>(topo.tree) + static_cast<int>(topo.json) + static_cast<int>(topo.svg) > 1) {
    throw InvalidArgument("--tree, --json and --svg contradict each other");
  }
  if (options.topo.redact && !topo.json) throw InvalidArgument("--redact needs --json");
  if (topo.tree) options.topo.form = TopoForm::tree;
  if (topo.json) options.topo.form = TopoForm::json;
  if (topo.svg) options.topo.form = TopoForm::svg;
  if (topo.topo_file_option.is_given()) options.topo_file = topo.topo_file;
}

// Runs `read`; an error says how a program of the command's name is started.
template <class Read>
void read_as(const char* command, Read&& read) {
  try {
    read();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{0}: {1} (to start a program called {0}: glaunch -- {0})",
                                      command, error.what()));
  }
}

}  // namespace

Options parse_topo(const std::vector<std::string>& arguments) {
  Options options;
  options.action = Action::topo;
  TopoLine topo(options);
  read_as("topo", [&] {
    options.text = topo.line.parse(arguments);
    if (options.text.empty()) read_topo(topo, options);
  });
  if (!options.text.empty()) options.action = Action::inform;
  return options;
}

Options parse_check(const std::vector<std::string>& arguments) {
  Options options;
  options.action = Action::check;
  CheckLine check(options);
  read_as("check", [&] {
    options.text = check.line.parse(arguments);
    if (check.ranks_option.is_given()) options.check.ranks = check.ranks;
    if (check.topo_file_option.is_given()) options.topo_file = check.topo_file;
    if (check.deadline.empty()) return;
    if (!options.check.full) throw InvalidArgument("--deadline needs --full");
    options.check.deadline = parse_duration(check.deadline, "--deadline");
    if (options.check.deadline.count() == 0) {
      throw InvalidArgument("--deadline: expected more than 0");
    }
  });
  if (!options.text.empty()) options.action = Action::inform;
  return options;
}

std::vector<ProgramDescription> describe_topo_commands() {
  Options unused;
  return {TopoLine(unused).line.description(), CheckLine(unused).line.description()};
}

}  // namespace gantry::launcher
