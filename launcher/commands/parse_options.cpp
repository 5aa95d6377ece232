#include "launcher/commands/parse_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

#include "command_line/command_line.hpp"
#include "launcher/commands/foreign_options.hpp"
#include "launcher/commands/subcommands.hpp"
#include "launcher/hosts/hosts.hpp"
#include "launcher/options/environment.hpp"
#include "launcher/options/option_values.hpp"
#include "launcher/placement/placement_line.hpp"
#include "launcher/topo/topo_line.hpp"

namespace gantry::launcher {
namespace {

constexpr const char* kFooter = R"(
Exit code: of the first rank that failed, 128+N after signal N, 124 after a time
limit, 125, 126 or 127 if the job cannot be started, 130 after Ctrl-C.)";

// Replacements of an elastic job, unless --max-restarts says otherwise.
constexpr int kDefaultReplacements = 100;

// "2:4".
ElasticRange parse_elastic(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    throw InvalidArgument(
        fmt::format("--elastic: expected MIN:MAX ranks, such as 2:4, but got '{}'", text));
  }
  const auto read = [&](std::string_view part, std::int64_t least) {
    return static_cast<int>(env::parse_int(part, "--elastic", least, kMaxRanks));
  };
  const ElasticRange range{read(text.substr(0, colon), 1), read(text.substr(colon + 1), 2)};
  if (range.fewest > range.most) {
    throw InvalidArgument(fmt::format(
        "--elastic: expected MIN:MAX with at most MAX ranks as MIN, but got '{}'", text));
  }
  return range;
}

void read_elastic(Options& options, const std::string& text, bool has_max_restarts) {
  options.elastic = parse_elastic(text);
  if (options.ranks && *options.ranks != options.elastic->most) {
    throw InvalidArgument(fmt::format(
        "-n {} and --elastic {} contradict each other: an elastic job starts with MAX ranks",
        *options.ranks, text));
  }
  if (options.keep_going) {
    throw InvalidArgument("--keep-going and --elastic contradict each other");
  }
  options.ranks = options.elastic->most;
  if (!has_max_restarts) options.max_restarts = kDefaultReplacements;
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
    } else if (!env::get(name.c_str())) {
      options.notes.push_back(fmt::format("-x {0}: {0} is not set, so ranks do not get it", name));
    }
  }
}

}  // namespace

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

  if (!arguments.empty() && arguments[0] == "shim") {
    return parse_shim({arguments.begin() + 1, arguments.end()});
  }

  if (!arguments.empty() && arguments[0] == "topo") {
    return parse_topo({arguments.begin() + 1, arguments.end()});
  }

  if (!arguments.empty() && arguments[0] == "check") {
    return parse_check({arguments.begin() + 1, arguments.end()});
  }

  CommandLine line("Starts one process per device, merges their output and stops them together.",
                   "glaunch");
  line.set_usage("[options] [--] program [arguments…]");
  line.stop_at_first_argument();
  line.set_footer(kFooter);
  add_foreign_options(line);

  int ranks = 0;
  bool standalone = false;
  bool no_prefix = false;
  bool dry_run = false;
  std::string prefix, log_dir, grace, timeout, forward, report, restart_delay;
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
  std::string wrap;
  std::vector<std::string> rank_wraps;
  const CommandLineOption wrap_option =
      line.add_option("--wrap", wrap, "put a command in front of the program; %r: rank")
          .value("COMMAND");
  line.add_option("--wrap-rank", rank_wraps, "the same for some ranks: 0='gdb --args'")
      .repeatable()
      .value("R=COMMAND");
  line.add_option("-x", exports, "set a variable for the ranks; repeatable")
      .repeatable()
      .value("NAME=VALUE");

  std::string hosts, hostfile;
  const CommandLineOption hosts_option =
      line.add_option("--hosts", hosts, "machines, started by srun or mpirun").value("A:4,B:4");
  for (const char* habit : {"--host", "-host", "-H"}) line.add_alias(habit, "--hosts");
  line.add_option("--hostfile", hostfile, "a line for each machine: name slots=4")
      .value("FILE", ValueKind::file)
      .excludes(hosts_option);
  for (const char* habit : {"-hostfile", "--machinefile", "-machinefile"}) {
    line.add_alias(habit, "--hostfile");
  }

  line.begin_group("Placement");
  const PlacementLine placement(line, options);
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
  line.add_flag("--tee", options.tee, "write output to files, too, in a new directory");
  line.add_option("--stdin", stdin_mode, "reader of standard input (rank0)")
      .one_of({"rank0", "none"});

  line.begin_group("Failure");
  line.add_option("--tail", options.tail, "lines shown of a rank that failed (20)")
      .range(0, 100000);
  const CommandLineOption grace_option =
      line.add_option("--grace", grace, "time between SIGTERM and SIGKILL (15s)").value("TIME");
  const CommandLineOption timeout_option =
      line.add_option("--timeout", timeout, "stop the job after this time").value("TIME");
  std::string init_timeout, stall_timeout;
  const CommandLineOption init_timeout_option =
      line.add_option("--init-timeout", init_timeout,
                      "stop unless all ranks are in world() by then")
          .value("TIME");
  const CommandLineOption stall_timeout_option =
      line.add_option("--stall-timeout", stall_timeout, "stop when no rank gets further in a call")
          .value("TIME");
  const CommandLineOption forward_option =
      line.add_option("--forward", forward, "signals for the ranks, such as USR1,USR2")
          .value("SIGNALS");
  line.add_flag("--keep-going", options.keep_going, "do not stop the others when a rank fails");
  std::string elastic;
  const CommandLineOption elastic_option =
      line.add_option("--elastic", elastic, "replace ranks that fail while MIN of MAX are left")
          .value("MIN:MAX");
  const CommandLineOption max_restarts_option =
      line.add_option("--max-restarts", options.max_restarts,
                      "restarts of the job (0), of elastic ranks (100)")
          .range(0, 1'000'000);
  const CommandLineOption restart_delay_option =
      line.add_option("--restart-delay", restart_delay, "pause before, doubled each time (1s)")
          .value("TIME");
  const CommandLineOption report_option =
      line.add_option("--report", report, "write what happened to a JSON file")
          .value("FILE", ValueKind::file);
  line.begin_group("");
  line.add_flag("--standalone", standalone, "ignored").hidden();
  for (const ProgramDescription& command : describe_subcommands()) line.add_command(command);

  options.text = line.parse(arguments);
  if (!options.text.empty()) {
    options.action = Action::inform;
    return options;
  }

  options.command = read_command(line);

  if (ranks_option.is_given()) options.ranks = ranks;
  if (standalone) {
    options.notes.push_back("--standalone has no effect: glaunch always serves its own rendezvous");
  }
  read_exports(options, exports);
  if (hosts_option.is_given()) options.hosts = parse_hosts(hosts, "--hosts");
  if (!hostfile.empty()) options.hosts = read_hostfile(hostfile);
  if (options.hosts.size() == 1 && options.hosts[0].ranks) {
    if (options.ranks && *options.ranks != *options.hosts[0].ranks) {
      throw InvalidArgument(fmt::format("-n {} and {} ranks on {} contradict each other",
                                        *options.ranks, *options.hosts[0].ranks,
                                        options.hosts[0].name));
    }
    options.ranks = options.hosts[0].ranks;
  }
  options.has_own_prefix = prefix_option.is_given();
  options.color = color == "always"  ? ColorMode::always
                  : color == "never" ? ColorMode::never
                                     : ColorMode::automatic;
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
  const auto read_limit = [](const CommandLineOption& option, const std::string& text,
                             const char* name, std::optional<std::chrono::milliseconds>& limit) {
    if (!option.is_given()) return;
    limit = parse_duration(text, name);
    if (limit->count() == 0) throw InvalidArgument(fmt::format("{}: expected more than 0", name));
  };
  read_limit(timeout_option, timeout, "--timeout", options.timeout);
  read_limit(init_timeout_option, init_timeout, "--init-timeout", options.init_timeout);
  read_limit(stall_timeout_option, stall_timeout, "--stall-timeout", options.stall_timeout);
  if (wrap_option.is_given()) {
    options.wrappers.push_back(parse_wrapper(wrap));
    options.placement_arguments.push_back(fmt::format("--wrap={}", wrap));
  }
  for (const std::string& text : rank_wraps) {
    options.wrappers.push_back(parse_rank_wrapper(text));
    options.placement_arguments.push_back(fmt::format("--wrap-rank={}", text));
  }
  if (elastic_option.is_given()) {
    read_elastic(options, elastic, max_restarts_option.is_given());
  }
  if (restart_delay_option.is_given()) {
    if (options.max_restarts == 0) {
      throw InvalidArgument("--restart-delay needs --max-restarts or --elastic");
    }
    options.restart_delay = parse_duration(restart_delay, "--restart-delay");
  }
  if (options.keep_going && options.max_restarts > 0) {
    throw InvalidArgument("--keep-going and --max-restarts contradict each other");
  }
  if (forward_option.is_given()) options.forward = parse_signals(forward);
  options.stdin_mode = stdin_mode == "none" ? StdinMode::none : StdinMode::rank0;
  if (options.cpu_only && !options.ranks && (options.hosts.empty() || !options.hosts[0].ranks)) {
    throw InvalidArgument("--cpu-only needs -n: there are no devices to count");
  }
  placement.read();
  if (options.json && !dry_run) throw InvalidArgument("--json needs --dry-run");
  if (dry_run) options.action = Action::dry_run;
  return options;
}

}  // namespace gantry::launcher
