#include "launcher/options.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

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

Options parse_dump(std::vector<std::string> arguments) {
  Options options;
  options.action = Action::dump;
  CLI::App app("Prints what the ranks of this user's jobs are at in their collectives.",
               "glaunch dump");
  app.footer(kDumpFooter);
  app.add_flag("--clear", options.clear, "remove the records of groups whose ranks have all ended");
  app.add_flag("--json", options.json, "print JSON");
  app.add_option("target", options.target,
                 "a job (GANTRY_JOB_ID), the process id of a rank, or a file with a slash");
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    options.action = Action::inform;
    options.text = app.help();
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(
        fmt::format("dump: {} (to start a program called dump: glaunch -- dump)", error.what()));
  }
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

Options parse_options(std::vector<std::string> arguments) {
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

  CLI::App app("Starts one process per device, merges their output and stops them together.",
               "glaunch");
  app.prefix_command();
  app.footer(kFooter);
  app.get_formatter()->column_width(32);

  int ranks = 0;
  bool no_prefix = false;
  bool dry_run = false;
  std::string prefix, log_dir, grace, timeout, forward, report, stdin_mode = "rank0";
  int only_rank = 0;
  app.add_option("-n,--ranks", ranks, "number of ranks (default: one per visible device)")
      ->check(CLI::Range(1, kMaxRanks));
  app.add_option("--ranks-per-device,--ranks-per-gpu", options.ranks_per_device,
                 "let K ranks share a device")
      ->check(CLI::Range(1, kMaxRanks));
  app.add_flag("--cpu-only", options.cpu_only, "give ranks no device; needs -n");
  app.add_option(
      "--prefix", prefix,
      "what each line starts with: {rank}, {local_rank}, {host} (default \"[{rank}] \")");
  app.add_flag("--no-prefix", no_prefix, "print lines as they are");
  app.add_option("--only-rank", only_rank, "show only this rank's output on the console")
      ->check(CLI::Range(0, kMaxRanks - 1));
  app.add_option("--log-dir", log_dir, "write each rank's complete output to rank<N>.out, .err");
  app.add_option("--tail", options.tail, "lines shown of a rank that failed (default 20)")
      ->check(CLI::Range(0, 100000));
  app.add_option("--stdin", stdin_mode, "who reads standard input: rank0 (default) or none")
      ->check(CLI::IsMember({"rank0", "none"}));
  app.add_option("--grace", grace, "time between SIGTERM and SIGKILL (default 15s)");
  app.add_option("--timeout", timeout, "stop the job after this time");
  app.add_option("--forward", forward, "signals to hand on to the ranks, such as USR1,USR2");
  app.add_flag("--keep-going", options.keep_going, "do not stop the others when a rank fails");
  app.add_option("--report", report, "write what happened to this JSON file");
  app.add_flag("--dry-run", dry_run, "print the plan and start nothing");
  app.add_flag("--json", options.json, "with --dry-run: print JSON");
  app.set_version_flag("--version", std::string("glaunch ") + kVersion);

  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    options.action = Action::inform;
    options.text = app.help();
    const std::string_view generic = "[OPTIONS]";
    if (const auto at = options.text.find(generic); at != std::string::npos) {
      options.text.replace(at, generic.size(), "[options] [--] program [arguments…]");
    }
    return options;
  } catch (const CLI::CallForVersion&) {
    options.action = Action::inform;
    options.text = app.version() + "\n";
    return options;
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  }

  options.command = app.remaining();
  if (!options.command.empty() && options.command[0] == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command[0].starts_with('-')) {
    throw InvalidArgument(fmt::format("unknown option '{}'", options.command[0]));
  }
  if (options.command.empty()) throw InvalidArgument("no program to start (see glaunch --help)");

  if (app.count("-n") != 0) options.ranks = ranks;
  if (app.count("--prefix") != 0) options.prefix = prefix;
  if (no_prefix && app.count("--prefix") != 0) {
    throw InvalidArgument("--prefix and --no-prefix contradict each other");
  }
  if (no_prefix) options.prefix.reset();
  if (app.count("--only-rank") != 0) options.only_rank = only_rank;
  if (app.count("--log-dir") != 0) {
    if (log_dir.empty()) throw InvalidArgument("--log-dir: expected a directory, but got ''");
    options.log_dir = log_dir;
  }
  if (app.count("--report") != 0) options.report = report;
  if (app.count("--grace") != 0) options.grace = parse_duration(grace, "--grace");
  if (app.count("--timeout") != 0) {
    options.timeout = parse_duration(timeout, "--timeout");
    if (options.timeout->count() == 0) throw InvalidArgument("--timeout: expected more than 0");
  }
  if (app.count("--forward") != 0) options.forward = parse_signals(forward);
  options.stdin_mode = stdin_mode == "none" ? StdinMode::none : StdinMode::rank0;
  if (options.cpu_only && !options.ranks) {
    throw InvalidArgument("--cpu-only needs -n: there are no devices to count");
  }
  if (options.cpu_only && app.count("--ranks-per-device") != 0) {
    throw InvalidArgument("--cpu-only and --ranks-per-device contradict each other");
  }
  if (options.json && !dry_run) throw InvalidArgument("--json needs --dry-run");
  if (dry_run) options.action = Action::dry_run;
  return options;
}

}  // namespace gantry::launcher
