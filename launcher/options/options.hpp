#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <gantry/machine/plan.hpp>

#include "launcher/options/dump_request.hpp"
#include "launcher/options/host.hpp"
#include "launcher/options/topo_request.hpp"
#include "launcher/options/wrapper.hpp"

namespace gantry::launcher {

/// Most ranks of a job.
inline constexpr int kMaxRanks = 4096;

/// The command line of glaunch.
enum class Action {
  run,          ///< start the command
  dry_run,      ///< print the plan
  environment,  ///< print the variables that ranks get
  dump,         ///< print what the ranks of jobs are at
  shim,         ///< become one rank of a job that srun or mpirun started
  topo,         ///< print the machine
  check,        ///< look for what keeps jobs from running well
  inform,       ///< print `text` (help, version)
};

/// Which rank reads glaunch's standard input.
enum class StdinMode { rank0, none };

/// When prefixes are coloured; `automatic`: on a terminal, unless NO_COLOR or TERM=dumb is set.
enum class ColorMode { automatic, always, never };

/// A variable of the environment.
struct Variable {
  std::string name;
  std::string value;
};

/// The ranks of --elastic MIN:MAX.
struct ElasticRange {
  int fewest = 1;  ///< ranks with which the job goes on
  int most = 2;    ///< ranks that it starts with, and has again when all are replaced
};

/// The command line, parsed and checked.
struct Options {
  Action action = Action::run;
  std::string text;                ///< for Action::inform
  std::vector<std::string> notes;  ///< lines for the user about options that have no effect
  bool json = false;
  TopoRequest topo;                          ///< for Action::topo
  CheckRequest check;                        ///< for Action::check
  DumpRequest dump;                          ///< for Action::dump
  bool follow = false;                       ///< for Action::dump: print again and again
  std::chrono::milliseconds interval{1000};  ///< for `follow`

  std::vector<std::string> command;
  std::optional<int> ranks;
  std::vector<Host> hosts;  ///< of --hosts or --hostfile; empty: see job_hosts()
  int ranks_per_device = 1;
  bool cpu_only = false;
  machine::PlanOptions placement;                ///< which GPUs and CPUs; its `ranks` is not used
  std::vector<std::string> placement_arguments;  ///< the options behind it, for another glaunch
  std::optional<std::string> topo_file;          ///< in place of GANTRY_TOPO_FILE
  std::vector<Wrapper> wrappers;                 ///< of --wrap and --wrap-rank, in their order
  std::vector<Variable> exports;  ///< of -x: set before anything else reads the environment

  bool has_own_prefix = false;                      ///< --prefix was given
  std::optional<std::string> prefix = "[{rank}] ";  ///< none: lines are printed as they are
  ColorMode color = ColorMode::automatic;
  std::optional<std::string> log_dir;
  bool tee = false;  ///< keeps the output in files also without `log_dir`
  std::optional<int> only_rank;
  int tail = 20;  ///< lines shown of a rank that failed
  StdinMode stdin_mode = StdinMode::rank0;

  std::chrono::milliseconds grace{15'000};
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<std::chrono::milliseconds> init_timeout;   ///< for all ranks to be in world()
  std::optional<std::chrono::milliseconds> stall_timeout;  ///< without progress in a call
  std::vector<int> forward;  ///< signal numbers handed on to the ranks
  bool keep_going = false;
  std::optional<ElasticRange> elastic;
  int max_restarts = 0;  ///< of the job; with `elastic`: of its ranks together
  std::chrono::milliseconds restart_delay{1000};  ///< pause before the first restart
  std::optional<std::string> report;
};

}  // namespace gantry::launcher
