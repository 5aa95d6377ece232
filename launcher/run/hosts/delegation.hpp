// Jobs on several machines, which srun or mpirun starts with one `glaunch shim` for each rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/env/environment.hpp"
#include "launcher/run/hosts/hosts.hpp"
#include "launcher/run/options/job_options.hpp"

namespace gantry::launcher {

/// The launcher of a job on several machines, and its command line.
struct Delegation {
  std::string launcher;              ///< "srun" or "mpirun"
  std::vector<std::string> command;  ///< the launcher and its arguments
  std::vector<Host> hosts;           ///< in rank order, each with a number of ranks
  int ranks = 0;

  /// The path of glaunch that the command line names.
  std::string glaunch = {};
  /// An inherited variable, "NAME=VALUE", with which mpirun starts ranks on this machine only. The
  /// job does not get it. Empty: there is none.
  std::string dropped_variable = {};

  /// Where the job's store listens: at the address that ranks connect to, which is the loopback one
  /// if that is enough.
  [[nodiscard]] std::string listen_address() const;
  /// The store's address for ranks, from what the server tells.
  [[nodiscard]] std::string rank_address(const std::string& server_address) const;
  /// The names of the hosts of these ranks, each once.
  [[nodiscard]] std::vector<std::string> hosts_of(const std::vector<int>& ranks) const;
};

/// The hosts of --hosts or --hostfile, else the hosts of the Slurm allocation that glaunch is in if
/// it has several nodes and glaunch is no task of a step. Empty if the job is for this machine
/// alone. Throws: InvalidArgument.
[[nodiscard]] std::vector<Host> job_hosts(const JobOptions& options,
                                          const Environment& environment);

/// Builds the command line for these hosts. Hosts without a number of ranks get an equal share of
/// -n, or `ranks_per_host`. `glaunch` is the path of this program on every host.
/// Throws: InvalidArgument for options that need one machine, or that contradict each other.
[[nodiscard]] Delegation make_delegation(const JobOptions& options, const Environment& environment,
                                         std::vector<Host> hosts, int ranks_per_host,
                                         const std::string& glaunch);

/// Values for the ranks that are known only when the job starts.
struct DelegationValues {
  std::string job_id;
  std::string rendezvous;
  std::string rendezvous_token;
  std::string master_port;
  int restarts = 0;
};

/// The environment of the launcher: what is inherited, less foreign identity, plus the job's.
[[nodiscard]] Environment delegation_environment(const Environment& inherited,
                                                 const Delegation& delegation,
                                                 const DelegationValues& values);

/// The delegation for --dry-run: a text, or JSON.
[[nodiscard]] std::string describe_delegation(const Delegation& delegation, bool json);

/// A command line as a shell reads it.
[[nodiscard]] std::string shell_text(const std::vector<std::string>& command);

/// Numbers of ranks of the hosts, "4,4": set by glaunch for its shims, and for them alone.
inline constexpr const char* kHostRanksVariable = "GANTRY_SHIM_RANKS";
}  // namespace gantry::launcher
