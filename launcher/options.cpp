#include "launcher/options.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

#include "command_line/command_line.hpp"
#include "launcher/version.hpp"

namespace gantry::launcher {
namespace {

constexpr std::int64_t kMaxSeconds = 366LL * 24 * 3600;

constexpr const char* kFooter = R"(
Without -n, one rank is started per visible device: the GPUs that NVML shows, filtered by
CUDA_VISIBLE_DEVICES, or GANTRY_SIM_DEVICES=N simulated ones.

  glaunch env                  print the variables that ranks get
  glaunch dump [--clear] [--json] [JOB|PID|FILE]
                               print what the ranks of jobs, also of jobs that hang or were killed,
                               are at in their collectives; see glaunch dump --help
  glaunch -n 2 -- ./app -v     everything behind the program's name belongs to the program

Exit code: that of the first rank that failed, 128+N if signal N ended it, 124 after --timeout,
125 for glaunch's own errors, 126/127 if the program cannot be started, 130 after Ctrl-C.)";

constexpr const char* kDumpFooter = R"(
Ranks of one machine write down every collective call in shared memory, where it stays when they
hang or are killed. For each group: its ranks, their newest calls, and who waits for whom.
To start a program called dump: glaunch -- dump)";

Options parse_dump(const std::vector<std::string>& arguments) {
  Options options;
  options.action = Action::dump;
  CommandLine line("Prints what the ranks of this user's jobs are at in their collectives.",
                   "glaunch dump");
  line.set_footer(kDumpFooter);
  line.add_flag("--clear", options.clear,
                "remove the records of groups whose ranks have all ended");
  line.add_flag("--json", options.json, "print JSON");
  line.add_option("target", options.target,
                  "a job (GANTRY_JOB_ID), the process id of a rank, or a file with a slash");
  try {
    options.text = line.parse(arguments);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(
        fmt::format("dump: {} (to start a program called dump: glaunch -- dump)", error.what()));
  }
  if (!options.text.empty()) options.action = Action::inform;
  return options;
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
  line.stop_at_first_argument();
  line.set_footer(kFooter);
  line.set_name_columns(32);

  int ranks = 0;
  bool no_prefix = false;
  bool dry_run = false;
  std::string prefix, log_dir, grace, timeout, forward, report, stdin_mode = "rank0";
  int only_rank = 0;
  const CommandLineOption ranks_option =
      line.add_option("-n,--ranks", ranks, "number of ranks (default: one per visible device)")
          .range(1, kMaxRanks);
  const CommandLineOption per_device_option =
      line.add_option("--ranks-per-device,--ranks-per-gpu", options.ranks_per_device,
                      "let K ranks share a device")
          .range(1, kMaxRanks);
  line.add_flag("--cpu-only", options.cpu_only, "give ranks no device; needs -n");
  const CommandLineOption prefix_option = line.add_option(
      "--prefix", prefix,
      "what each line starts with: {rank}, {local_rank}, {host} (default \"[{rank}] \")");
  line.add_flag("--no-prefix", no_prefix, "print lines as they are");
  const CommandLineOption only_rank_option =
      line.add_option("--only-rank", only_rank, "show only this rank's output on the console")
          .range(0, kMaxRanks - 1);
  const CommandLineOption log_dir_option = line.add_option(
      "--log-dir", log_dir, "write each rank's complete output to rank<N>.out, .err");
  line.add_option("--tail", options.tail, "lines shown of a rank that failed (default 20)")
      .range(0, 100000);
  line.add_option("--stdin", stdin_mode, "who reads standard input: rank0 (default) or none")
      .one_of({"rank0", "none"});
  const CommandLineOption grace_option =
      line.add_option("--grace", grace, "time between SIGTERM and SIGKILL (default 15s)");
  const CommandLineOption timeout_option =
      line.add_option("--timeout", timeout, "stop the job after this time");
  const CommandLineOption forward_option =
      line.add_option("--forward", forward, "signals to hand on to the ranks, such as USR1,USR2");
  line.add_flag("--keep-going", options.keep_going, "do not stop the others when a rank fails");
  const CommandLineOption report_option =
      line.add_option("--report", report, "write what happened to this JSON file");
  line.add_flag("--dry-run", dry_run, "print the plan and start nothing");
  line.add_flag("--json", options.json, "with --dry-run: print JSON");
  line.set_version(std::string("glaunch ") + kVersion);

  options.text = line.parse(arguments);
  if (!options.text.empty()) {
    options.action = Action::inform;
    const std::string_view generic = "[OPTIONS]";
    if (const auto at = options.text.find(generic); at != std::string::npos) {
      options.text.replace(at, generic.size(), "[options] [--] program [arguments…]");
    }
    return options;
  }

  options.command = line.rest();
  if (!options.command.empty() && options.command[0] == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command[0].starts_with('-')) {
    throw InvalidArgument(fmt::format("unknown option '{}'", options.command[0]));
  }
  if (options.command.empty()) throw InvalidArgument("no program to start (see glaunch --help)");

  if (ranks_option.is_given()) options.ranks = ranks;
  if (prefix_option.is_given()) options.prefix = prefix;
  if (no_prefix && prefix_option.is_given()) {
    throw InvalidArgument("--prefix and --no-prefix contradict each other");
  }
  if (no_prefix) options.prefix.reset();
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
  if (forward_option.is_given()) options.forward = parse_signals(forward);
  options.stdin_mode = stdin_mode == "none" ? StdinMode::none : StdinMode::rank0;
  if (options.cpu_only && !options.ranks) {
    throw InvalidArgument("--cpu-only needs -n: there are no devices to count");
  }
  if (options.cpu_only && per_device_option.is_given()) {
    throw InvalidArgument("--cpu-only and --ranks-per-device contradict each other");
  }
  if (options.json && !dry_run) throw InvalidArgument("--json needs --dry-run");
  if (dry_run) options.action = Action::dry_run;
  return options;
}

}  // namespace gantry::launcher
