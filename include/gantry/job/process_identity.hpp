#pragma once

#include <functional>
#include <string>

#include <gantry/core/export.hpp>

namespace gantry {

/// Identity of this process in its job, from the environment that its launcher set.
/// @since 0.1
struct ProcessIdentity {
  int rank = 0;        ///< rank in the job, from 0 on
  int world_size = 1;  ///< number of ranks
  int local_rank = 0;  ///< rank among the processes of this node
  int local_size = 1;  ///< number of processes on this node
  int node_rank = 0;   ///< index of this node; -1: unknown
  int node_count = 1;  ///< number of nodes; -1: unknown
  /// Source of the identity: "glaunch", "environment" (GANTRY_RANK without glaunch), "openmpi",
  /// "pmi", "mvapich", "slurm", "torchrun", "pmix" (PMIX_RANK alone) or "single".
  std::string source = "single";
  /// Name that is unique to the job on its machines; empty where the launcher gives none.
  std::string job_id{};
  /// Address of the job's Store (gantry/extend/store.hpp); empty if the environment does not give
  /// it.
  std::string rendezvous{};
  /// Secret of this Store, from GANTRY_RDZV_TOKEN; empty if that is not set.
  std::string rendezvous_token{};

  /// True if this process is the one that must serve the Store at `rendezvous`: rank 0, unless
  /// glaunch serves it.
  [[nodiscard]] bool serves_rendezvous() const {
    return source != "glaunch" && rank == 0 && !rendezvous.empty();
  }
};

/// Reads one environment variable: the value, or a null pointer if it is unset.
using EnvironmentReader = std::function<const char*(const char*)>;

/// Detects the identity of this process.
///
/// The first source that is present determines the rank: GANTRY_RANK and GANTRY_WORLD_SIZE;
/// OMPI_COMM_WORLD_*; PMI_RANK and PMI_SIZE; MV2_COMM_WORLD_*; a Slurm step of more than one task;
/// RANK and WORLD_SIZE; else a single process. PMIX_RANK alone does not tell the number of ranks:
/// it makes a single process, too, and Communicator::world() warns or throws. Other sources add
/// facts that it lacks: the ranks of one node, and the address of the store.
///
/// GANTRY_RANK comes from glaunch if GANTRY_JOB_ID is set. Otherwise it needs GANTRY_RDZV, or
/// MASTER_ADDR and MASTER_PORT. A GANTRY_RDZV of the user replaces any derived address. Without
/// `environment` the function reads the process's own variables.
/// Throws: InvalidArgument that names the variable and its value if a number is malformed or out of
/// range, if one of a pair is missing, or if two sources contradict each other.
/// @since 0.1
[[nodiscard]] GANTRY_API ProcessIdentity
detect_process_identity(const EnvironmentReader& environment = {});

}  // namespace gantry
