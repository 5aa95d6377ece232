#include "launcher/topo/topo_command.hpp"

#include "command_line/command_line.hpp"

namespace gantry::launcher {
namespace {

constexpr const char* kFooter = R"(
Each fact comes from NVML, hwloc, sysfs, a file of NCCL or the file that is
given; what is unknown is a question mark. The JSON can be given to
--topo-file, here or on another machine.
To start a program called topo: glaunch -- topo)";

struct TopoLine {
  CommandLine line{"Prints GPUs, processors, interfaces and links.", "glaunch topo"};
  TopoOptions options;
  bool tree = false;
  bool json = false;
  bool svg = false;

  TopoLine() {
    line.set_footer(kFooter);
    line.add_option("--topo-file", options.topo_file,
                    "facts about the machine: JSON, or hwloc's or NCCL's XML")
        .value("FILE", ValueKind::file);
    line.add_flag("--tree", tree, "print a tree of PCI bridges");
    line.add_flag("--json", json, "print JSON");
    line.add_flag("--svg", svg, "print a picture");
    line.add_flag("--redact", options.request.redact, "with --json: no names and no UUIDs");
  }

  void read() {
    if (static_cast<int>(tree) + static_cast<int>(json) + static_cast<int>(svg) > 1) {
      throw InvalidArgument("--tree, --json and --svg contradict each other");
    }
    if (options.request.redact && !json) throw InvalidArgument("--redact needs --json");
    if (tree) options.request.form = TopoForm::tree;
    if (json) options.request.form = TopoForm::json;
    if (svg) options.request.form = TopoForm::svg;
  }
};

ProgramDescription describe() { return TopoLine().line.description(); }

int run(const std::vector<std::string>& arguments) {
  const TopoOptions options = parse_topo(arguments);
  if (!options.help.empty()) {
    print(options.help);
    return 0;
  }
  check_environment();
  print(describe_topology(machine::discover_topology(topology_options(options.topo_file)),
                          options.request));
  return 0;
}

}  // namespace

TopoOptions parse_topo(const std::vector<std::string>& arguments) {
  return parse_as("topo", [&] {
    TopoLine topo;
    topo.options.help = topo.line.parse(arguments);
    if (topo.options.help.empty()) topo.read();
    return topo.options;
  });
}

const Command kTopoCommand{"topo", describe, run};

}  // namespace gantry::launcher
