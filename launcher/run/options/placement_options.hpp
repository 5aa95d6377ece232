#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gantry/machine/plan.hpp>

#include "launcher/run/options/wrapper.hpp"

namespace gantry::launcher {

/// Most ranks of a job.
inline constexpr int kMaxRanks = 4096;

/// The number of ranks, their devices and CPUs, and the commands in front of them.
struct PlacementOptions {
  std::optional<int> ranks;
  int ranks_per_device = 1;
  bool cpu_only = false;
  machine::PlanOptions choice;           ///< of GPUs and CPUs; its `ranks` is not used
  std::optional<std::string> topo_file;  ///< in place of GANTRY_TOPO_FILE
  std::vector<Wrapper> wrappers;         ///< of --wrap and --wrap-rank, in their order
  std::vector<std::string> arguments;    ///< the options behind all this, for another glaunch
};

}  // namespace gantry::launcher
