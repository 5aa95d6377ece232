#include "launcher/commands/subcommands.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "launcher/options/option_values.hpp"
#include "launcher/placement/placement_line.hpp"
#include "launcher/topo/topo_line.hpp"

namespace gantry::launcher {
namespace {

constexpr const char* kShimFooter = R"(
  mpirun -n 8 --bind-to none glaunch shim -- ./app
  srun -N2 --ntasks-per-node=8 --gpus-per-node=8 glaunch shim -- ./app

It chooses the device of its rank among those of its machine, and then executes
the program in its own place. To start a program called shim: glaunch -- shim)";

constexpr const char* kDumpFooter = R"(
Ranks of one machine write down every collective call in shared memory, where
it stays when they hang or are killed. For each group: its ranks, their newest
calls, and which rank waits for which.
To start a program called dump: glaunch -- dump)";

// The options of `glaunch dump`.
struct DumpLine {
  CommandLine line{"Prints what ranks are at in their collectives.", "glaunch dump"};
  std::string interval;

  explicit DumpLine(Options& options) {
    line.set_footer(kDumpFooter);
    line.add_option("target", options.dump.target,
                    "a job (GANTRY_JOB_ID), the process id of a rank, or a file with a slash "
                    "(jobs with living ranks, and the newest that broke)");
    line.add_flag("--all", options.dump.all, "all jobs of this user");
    line.add_flag("--follow", options.follow, "print again when a rank got further");
    line.add_option("--interval", interval, "with --follow: time between looks (1s)").value("TIME");
    line.add_flag("--clear", options.dump.clear,
                  "remove the records of groups whose ranks have all ended");
    line.add_flag("--json", options.dump.json, "print JSON");
  }
};

void check_dump(Options& options, const std::string& interval) {
  if (options.follow && options.dump.json) {
    throw InvalidArgument("--follow and --json contradict each other");
  }
  if (options.follow && options.dump.clear) {
    throw InvalidArgument("--follow and --clear contradict each other");
  }
  if (options.dump.all && !options.dump.target.empty()) {
    throw InvalidArgument("--all and a target contradict each other");
  }
  if (interval.empty()) return;
  if (!options.follow) throw InvalidArgument("--interval needs --follow");
  options.interval = parse_duration(interval, "--interval");
}

ProgramDescription describe_env() {
  ProgramDescription program;
  program.name = "glaunch env";
  program.summary = "Prints the variables of ranks and of gantry.";
  program.usage = "[--json]";
  program.options.push_back({.names = {"--json"}, .help = "print JSON"});
  return program;
}

// The options of `glaunch shim`.
struct ShimLine {
  CommandLine line{"Becomes one rank of a job of srun or mpirun.", "glaunch shim"};

  PlacementLine placement;
  std::vector<std::string> wraps;
  std::vector<std::string> rank_wraps;

  explicit ShimLine(Options& options) : placement(line, options) {
    line.add_option("--wrap", wraps, "put a command in front of the program; %r: rank")
        .repeatable()
        .value("COMMAND");
    line.add_option("--wrap-rank", rank_wraps, "the same for some ranks: 0='gdb --args'")
        .repeatable()
        .value("R=COMMAND");
    line.set_usage("[options] [--] program [arguments…]");
    line.stop_at_first_argument();
    line.set_footer(kShimFooter);
  }
};

}  // namespace

std::vector<std::string> read_command(const CommandLine& line) {
  std::vector<std::string> command = line.rest();
  if (!command.empty() && command[0] == "--") command.erase(command.begin());
  if (command.empty()) throw InvalidArgument("no program to start (see glaunch --help)");
  return command;
}

std::vector<ProgramDescription> describe_subcommands() {
  Options unused;
  std::vector<ProgramDescription> commands = describe_topo_commands();
  commands.insert(commands.end(), {DumpLine(unused).line.description(),
                                   ShimLine(unused).line.description(), describe_env()});
  return commands;
}

Options parse_shim(const std::vector<std::string>& arguments) {
  Options options;
  options.action = Action::shim;
  ShimLine shim(options);
  try {
    options.text = shim.line.parse(arguments);
    if (options.text.empty()) {
      options.command = read_command(shim.line);
      shim.placement.read();
      for (const std::string& text : shim.wraps) options.wrappers.push_back(parse_wrapper(text));
      for (const std::string& text : shim.rank_wraps) {
        options.wrappers.push_back(parse_rank_wrapper(text));
      }
    }
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(
        fmt::format("shim: {} (to start a program called shim: glaunch -- shim)", error.what()));
  }
  if (!options.text.empty()) options.action = Action::inform;
  return options;
}

Options parse_dump(const std::vector<std::string>& arguments) {
  Options options;
  options.action = Action::dump;
  DumpLine dump(options);
  try {
    options.text = dump.line.parse(arguments);
    if (options.text.empty()) check_dump(options, dump.interval);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(
        fmt::format("dump: {} (to start a program called dump: glaunch -- dump)", error.what()));
  }
  if (!options.text.empty()) options.action = Action::inform;
  return options;
}

}  // namespace gantry::launcher
