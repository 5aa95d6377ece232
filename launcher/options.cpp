#include "launcher/options.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <cstdlib>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

#include "command_line/command_line.hpp"
#include "launcher/environment.hpp"

namespace gantry::launcher {
namespace {

constexpr std::int64_t kMaxSeconds = 366LL * 24 * 3600;

constexpr const char* kFooter = R"(
Exit code: that of the first rank that failed, 128+N if signal N ended it, 124
after --timeout, 125 for glaunch's own errors, 126 or 127 if the program cannot
be started, 130 after Ctrl-C. Everything behind the program is its own.)";

constexpr const char* kDumpFooter = R"(
Ranks of one machine write down every collective call in shared memory, where
it stays when they hang or are killed. For each group: its ranks, their newest
calls, and which rank waits for which.
To start a program called dump: glaunch -- dump)";

// The options of `glaunch dump`.
struct DumpLine {
  CommandLine line{"Prints what the ranks of this user's jobs are at in their collectives.",
                   "glaunch dump"};
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
  program.summary = "Prints the variables that ranks get, and those that gantry reads.";
  program.usage = "[--json]";
  program.options.push_back({.names = {"--json"}, .help = "print JSON"});
  return program;
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

// The variables of -x: "A=B", or "A" for its value here, which ranks get anyway.
void read_exports(Options& options, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (name.empty()) {
      throw InvalidArgument(fmt::format("-x: expected NAME=VALUE or NAME, but got '{}'", text));
    }
    const bool is_ours = name != "CUDA_VISIBLE_DEVICES" && name != "OMP_NUM_THREADS" &&
                         std::any_of(rank_variables().begin(), rank_variables().end(),
                                     [&](const RankVariable& one) { return one.name == name; });
    if (is_ours) {
      throw InvalidArgument(fmt::format(
          "-x: expected a variable that glaunch does not set itself, but got '{}'", name));
    }
    if (equals != std::string::npos) {
      options.exports.push_back({name, text.substr(equals + 1)});
    } else if (std::getenv(name.c_str()) == nullptr) {
      options.notes.push_back(fmt::format("-x {0}: {0} is not set, so ranks do not get it", name));
    }
  }
}

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

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  const bool environment_only =
      arguments.size() == 1 || (arguments.size() == 2 && arguments[1] == "--json");
  if (!arguments.empty() && arguments[0] == "env" && environment_only) {
    options.action = Action::environment;
    options.json = arguments.size() == 2;
    return options;
  }

  if (!arguments.empty() && arguments[0] == "dump") {
    return parse_dump({arguments.begin() + 1, arguments.end()});
  }

  for (const char* planned : {"topo", "check", "shim"}) {
    if (arguments.empty() || arguments[0] != planned) continue;
    throw InvalidArgument(fmt::format(
        "{0}: is not built yet (to start a program called {0}: glaunch -- {0})", planned));
  }

  CommandLine line("Starts one process per device, merges their output and stops them together.",
                   "glaunch");
  line.set_usage("[options] [--] program [arguments…]");
  line.stop_at_first_argument();
  line.set_footer(kFooter);

  int ranks = 0;
  bool standalone = false;
  bool no_prefix = false;
  bool dry_run = false;
  std::string prefix, log_dir, grace, timeout, forward, report, restart_delay;
  std::string gpus, order, bind, topo_file;
  std::string stdin_mode = "rank0";
  std::string color = "auto";
  std::vector<std::string> exports;
  int only_rank = 0;

  line.begin_group("Ranks");
  const CommandLineOption ranks_option =
      line.add_option("-n,--ranks", ranks, "number of ranks (one per visible device)")
          .range(1, kMaxRanks);
  for (const char* habit : {"-np", "--np", "--nproc-per-node", "--nproc_per_node"}) {
    line.add_alias(habit, "--ranks");
  }
  line.add_option("-x", exports, "set a variable for the ranks; repeatable")
      .repeatable()
      .value("NAME=VALUE");

  line.begin_group("Placement");
  const CommandLineOption per_device_option =
      line.add_option("--ranks-per-device", options.ranks_per_device, "let K ranks share a device")
          .range(1, kMaxRanks)
          .value("K");
  line.add_alias("--ranks-per-gpu", "--ranks-per-device");
  const CommandLineOption gpus_option =
      line.add_option("--gpus", gpus, "all, best:N, idle:N, or a list: 0,2 or GPU-ab,GPU-cd (all)")
          .value("CHOICE");
  const CommandLineOption order_option =
      line.add_option("--order", order, "GPUs of the ranks by pci, ring or given (pci)")
          .value("ORDER");
  const CommandLineOption bind_option =
      line.add_option("--bind", bind, "CPUs: auto, numa, core, none, or a list: 0-3:4-7 (auto)")
          .value("CPUS");
  const CommandLineOption topo_file_option =
      line.add_option("--topo-file", topo_file, "what is not seen of the machine: JSON or XML")
          .value("FILE", ValueKind::file);
  line.add_flag("--cpu-only", options.cpu_only, "give ranks no device; needs -n");
  line.add_flag("--dry-run", dry_run, "print the plan and start nothing");
  line.add_flag("--json", options.json, "with --dry-run: print JSON");

  line.begin_group("Output");
  const CommandLineOption prefix_option =
      line.add_option("--prefix", prefix, "start of each line: {rank} {local_rank} {host}");
  line.add_flag("--no-prefix", no_prefix, "print lines as they are");
  line.add_option("--color", color, "colour prefixes (auto: on a terminal)")
      .one_of({"auto", "always", "never"});
  const CommandLineOption only_rank_option =
      line.add_option("--only-rank", only_rank, "show only this rank's output")
          .range(0, kMaxRanks - 1)
          .value("R");
  const CommandLineOption log_dir_option =
      line.add_option("--log-dir", log_dir, "write each rank's output to rank<R>.out, .err")
          .value("DIR", ValueKind::directory);
  line.add_option("--stdin", stdin_mode, "reader of standard input (rank0)")
      .one_of({"rank0", "none"});

  line.begin_group("Failure");
  line.add_option("--tail", options.tail, "lines shown of a rank that failed (20)")
      .range(0, 100000);
  const CommandLineOption grace_option =
      line.add_option("--grace", grace, "time between SIGTERM and SIGKILL (15s)").value("TIME");
  const CommandLineOption timeout_option =
      line.add_option("--timeout", timeout, "stop the job after this time").value("TIME");
  const CommandLineOption forward_option =
      line.add_option("--forward", forward, "signals for the ranks, such as USR1,USR2")
          .value("SIGNALS");
  line.add_flag("--keep-going", options.keep_going, "do not stop the others when a rank fails");
  line.add_option("--max-restarts", options.max_restarts, "start the job again after a failure (0)")
      .range(0, 1'000'000);
  const CommandLineOption restart_delay_option =
      line.add_option("--restart-delay", restart_delay, "pause before, doubled each time (1s)")
          .value("TIME");
  const CommandLineOption report_option =
      line.add_option("--report", report, "write what happened to a JSON file")
          .value("FILE", ValueKind::file);
  line.begin_group("");
  line.add_flag("--standalone", standalone, "ignored").hidden();
  {
    Options unused;
    line.add_command(DumpLine(unused).line.description());
    line.add_command(describe_env());
  }

  options.text = line.parse(arguments);
  if (!options.text.empty()) {
    options.action = Action::inform;
    return options;
  }

  options.command = line.rest();
  if (!options.command.empty() && options.command[0] == "--") {
    options.command.erase(options.command.begin());
  }
  if (options.command.empty()) throw InvalidArgument("no program to start (see glaunch --help)");

  if (ranks_option.is_given()) options.ranks = ranks;
  if (standalone) {
    options.notes.push_back("--standalone has no effect: glaunch always serves its own rendezvous");
  }
  read_exports(options, exports);
  options.color = color == "always"  ? ColorMode::always
                  : color == "never" ? ColorMode::never
                                     : ColorMode::automatic;
  if (prefix_option.is_given()) options.prefix = prefix;
  if (no_prefix && prefix_option.is_given()) {
    throw InvalidArgument("--prefix and --no-prefix contradict each other");
  }
  if (no_prefix) options.prefix.reset();
  if (gpus_option.is_given()) options.placement.set_gpus(gpus);
  if (order_option.is_given()) options.placement.set_order(order);
  if (bind_option.is_given()) options.placement.set_bind(bind);
  if (topo_file_option.is_given()) options.topo_file = topo_file;
  if (only_rank_option.is_given()) options.only_rank = only_rank;
  if (log_dir_option.is_given()) {
    if (log_dir.empty()) throw InvalidArgument("--log-dir: expected a directory, but got ''");
    options.log_dir = log_dir;
  }
  if (report_option.is_given()) options.report = report;
  if (grace_option.is_given()) options.grace = parse_duration(grace, "--grace");
  if (timeout_option.is_given()) {
    options.timeout = parse_duration(timeout, "--timeout");
    if (options.timeout->count() == 0) throw InvalidArgument("--timeout: expected more than 0");
  }
  if (restart_delay_option.is_given()) {
    if (options.max_restarts == 0) throw InvalidArgument("--restart-delay needs --max-restarts");
    options.restart_delay = parse_duration(restart_delay, "--restart-delay");
  }
  if (options.keep_going && options.max_restarts > 0) {
    throw InvalidArgument("--keep-going and --max-restarts contradict each other");
  }
  if (forward_option.is_given()) options.forward = parse_signals(forward);
  options.stdin_mode = stdin_mode == "none" ? StdinMode::none : StdinMode::rank0;
  if (options.cpu_only && !options.ranks) {
    throw InvalidArgument("--cpu-only needs -n: there are no devices to count");
  }
  if (options.cpu_only && per_device_option.is_given()) {
    throw InvalidArgument("--cpu-only and --ranks-per-device contradict each other");
  }
  if (options.cpu_only && (gpus_option.is_given() || order_option.is_given())) {
    throw InvalidArgument(fmt::format("--cpu-only and {} contradict each other",
                                      gpus_option.is_given() ? "--gpus" : "--order"));
  }
  if (options.json && !dry_run) throw InvalidArgument("--json needs --dry-run");
  if (dry_run) options.action = Action::dry_run;
  return options;
}

}  // namespace gantry::launcher
