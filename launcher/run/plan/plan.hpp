#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/env/environment.hpp"
#include "launcher/run/hosts/delegation.hpp"
#include "launcher/run/options/job_options.hpp"
#include "launcher/run/plan/machine.hpp"

namespace gantry::launcher {

/// One process that will be started.
struct RankPlan {
  int rank = 0;
  int local_rank = 0;
  std::optional<int> device;  ///< index among the devices that the rank sees
  std::string device_uuid;
  std::string device_bus_id;
  std::string visible_devices;               ///< CUDA_VISIBLE_DEVICES; empty: left as it is
  std::optional<machine::CpuSet> cpus = {};  ///< CPUs that it is bound to; none: all
  std::optional<int> memory_node = {};       ///< NUMA node whose memory it gets
  std::optional<int> omp_threads = {};       ///< none: the user has set OMP_NUM_THREADS
  std::string nic = {};                      ///< name of the nearest network interface
  std::string reason = {};                   ///< of these CPUs, in one line
  machine::MemoryMode memory = machine::MemoryMode::prefer;
  std::vector<std::string> wrapper = {};  ///< words in front of the program
};

/// Everything that is decided before anything is started.
struct Plan {
  std::vector<std::string> command;
  std::string source = "none";  ///< of the devices: "nvml", "simulated", "file"
  std::string host;
  std::vector<RankPlan> ranks;
  std::vector<std::string> decisions;  ///< of the planner, one line each
  std::vector<std::string> warnings;
  std::optional<ElasticRange> elastic = {};
  std::optional<Delegation> delegation = {};  ///< set: the one process is another launcher
};

/// Values that are known only when the job starts.
struct JobValues {
  std::string job_id;
  std::string rendezvous;
  std::string rendezvous_token;
  std::string liveness_fd;
  std::string error_file_prefix;  ///< "<prefix><rank>.error" is the rank's error file
  std::string master_port;
  int restarts = 0;  ///< how often the job was started before, or number of the replacement
};

/// Decides which ranks run on which devices and CPUs. A pure function.
/// Throws: InvalidArgument with a text for the user if it cannot be done.
[[nodiscard]] Plan make_plan(const JobOptions& options, const Machine& machine,
                             const Environment& environment);

/// The plan of a job on several machines: one process, the other launcher.
[[nodiscard]] Plan plan_of(const Delegation& delegation);

/// The program of a rank with its arguments, behind the wrapper of the rank.
[[nodiscard]] std::vector<std::string> command_of(const Plan& plan, const RankPlan& rank);

/// The variables that glaunch sets for one rank, and only those.
[[nodiscard]] Environment rank_variables_of(const Plan& plan, const RankPlan& rank,
                                            const JobValues& values);

/// The whole environment of one rank: what is inherited, less foreign identity, plus what is set.
[[nodiscard]] Environment rank_environment(const Environment& inherited, const Plan& plan,
                                           const RankPlan& rank, const JobValues& values);

/// The plan for --dry-run: a table, or JSON.
[[nodiscard]] std::string describe_plan(const Plan& plan, const Environment& inherited, bool json);

}  // namespace gantry::launcher
