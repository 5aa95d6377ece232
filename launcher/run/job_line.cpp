#include "launcher/run/job_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "command_line/command_line.hpp"
#include "launcher/env/environment.hpp"
#include "launcher/run/foreign_options.hpp"
#include "launcher/run/hosts/hosts.hpp"
#include "launcher/run/options/failure_line.hpp"
#include "launcher/run/options/output_line.hpp"
#include "launcher/run/options/placement_line.hpp"
#include "launcher/run/options/program.hpp"
#include "launcher/run/options/wrapper_line.hpp"

namespace gantry::launcher {
namespace {

constexpr const char* kFooter = R"(
Exit code: of the first rank that failed, 128+N after signal N, 124 after a time
limit, 125, 126 or 127 if the job cannot be started, 130 after Ctrl-C.)";

// The variables of -x: "A=B", or "A" for its value here, which ranks get anyway.
void read_exports(JobOptions& options, const std::vector<std::string>& texts) {
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

// The command line of a job; its options are in the order of the help.
class JobLine {
 public:
  explicit JobLine(const std::vector<ProgramDescription>& commands) {
    line_.set_usage("[options] [--] program [arguments…]");
    line_.stop_at_first_argument();
    line_.set_footer(kFooter);
    add_foreign_options(line_);
    line_.begin_group("Ranks");
    add_ranks();
    line_.begin_group("Placement");
    placement_.emplace(line_, options_.placement);
    line_.add_flag("--dry-run", options_.dry_run, "print the plan and start nothing");
    line_.add_flag("--json", options_.json, "with --dry-run: print JSON");
    line_.begin_group("Output");
    output_.emplace(line_, options_.output);
    line_.begin_group("Failure");
    failure_.emplace(line_, options_.failure, options_.output.tail);
    line_.begin_group("");
    line_.set_common({"-n", "-x", "--hosts", "--gpus", "--bind", "--dry-run", "--log-dir",
                      "--timeout", "--elastic", "--max-restarts"});
    line_.add_flag("--standalone", standalone_, "ignored").hidden();
    for (const ProgramDescription& command : commands) line_.add_command(command);
  }

  JobOptions parse(const std::vector<std::string>& arguments) {
    options_.help = line_.parse(arguments);
    if (options_.help.empty()) read();
    return options_;
  }

 private:
  void add_ranks() {
    line_
        .add_option("-n,--ranks", options_.placement.ranks,
                    "number of ranks (one per visible device)")
        .range(1, kMaxRanks);
    for (const char* name : {"-np", "--np", "--nproc-per-node", "--nproc_per_node"}) {
      line_.add_alias(name, "--ranks");
    }
    wrappers_.emplace(line_, options_.placement);
    line_.add_option("-x", exports_, "set a variable for the ranks; repeatable")
        .repeatable()
        .value("NAME=VALUE");
    const CommandLineOption hosts =
        line_.add_option("--hosts", hosts_, "machines, started by srun or mpirun").value("A:4,B:4");
    for (const char* name : {"--host", "-host", "-H"}) line_.add_alias(name, "--hosts");
    line_.add_option("--hostfile", hostfile_, "a line for each machine: name slots=4")
        .value("FILE", ValueKind::file)
        .excludes(hosts);
    for (const char* name : {"-hostfile", "--machinefile", "-machinefile"}) {
      line_.add_alias(name, "--hostfile");
    }
  }

  void read() {
    options_.command = program_behind(line_);
    if (standalone_) {
      options_.notes.push_back(
          "--standalone has no effect: glaunch always serves its own rendezvous");
    }
    read_exports(options_, exports_);
    read_hosts();
    output_->read();
    wrappers_->read();
    failure_->read();
    read_elastic_ranks();
    const std::optional<int>& ranks = options_.placement.ranks;
    if (options_.placement.cpu_only && !ranks &&
        (options_.hosts.empty() || !options_.hosts[0].ranks)) {
      throw InvalidArgument("--cpu-only needs -n: there are no devices to count");
    }
    placement_->read();
    if (options_.json && !options_.dry_run) throw InvalidArgument("--json needs --dry-run");
  }

  void read_hosts() {
    if (hosts_) options_.hosts = parse_hosts(*hosts_, "--hosts");
    if (hostfile_) options_.hosts = read_hostfile(*hostfile_);
    if (options_.hosts.size() != 1 || !options_.hosts[0].ranks) return;
    std::optional<int>& ranks = options_.placement.ranks;
    if (ranks && *ranks != *options_.hosts[0].ranks) {
      throw InvalidArgument(fmt::format("-n {} and {} ranks on {} contradict each other", *ranks,
                                        *options_.hosts[0].ranks, options_.hosts[0].name));
    }
    ranks = options_.hosts[0].ranks;
  }

  void read_elastic_ranks() {
    const std::optional<ElasticRange>& elastic = options_.failure.elastic;
    if (!elastic) return;
    std::optional<int>& ranks = options_.placement.ranks;
    if (ranks && *ranks != elastic->most) {
      throw InvalidArgument(fmt::format(
          "-n {} and --elastic {}:{} contradict each other: an elastic job starts with MAX ranks",
          *ranks, elastic->fewest, elastic->most));
    }
    ranks = elastic->most;
  }

  CommandLine line_{"Starts one process per device, merges their output and stops them together.",
                    "glaunch"};
  JobOptions options_;
  std::vector<std::string> exports_;
  std::optional<std::string> hosts_;
  std::optional<std::string> hostfile_;
  bool standalone_ = false;
  std::optional<WrapperLine> wrappers_;
  std::optional<PlacementLine> placement_;
  std::optional<OutputLine> output_;
  std::optional<FailureLine> failure_;
};

}  // namespace

JobOptions parse_job(const std::vector<std::string>& arguments,
                     const std::vector<ProgramDescription>& commands) {
  return JobLine(commands).parse(arguments);
}

}  // namespace gantry::launcher
