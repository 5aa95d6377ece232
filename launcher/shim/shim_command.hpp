// The part of a launch that happens on the machine of each rank.
#pragma once

#include <string>
#include <vector>

#include <gantry/job/process_identity.hpp>

#include "launcher/command/command.hpp"
#include "launcher/env/environment.hpp"
#include "launcher/run/options/placement_options.hpp"
#include "launcher/run/plan/plan.hpp"

namespace gantry::launcher {

/// The command line of `glaunch shim`.
struct ShimOptions {
  std::string help;  ///< the text that --help asks for; empty: the program is to be started
  std::vector<std::string> command;
  PlacementOptions placement;
};

/// Parses the arguments behind `glaunch shim`. Throws: InvalidArgument.
[[nodiscard]] ShimOptions parse_shim(const std::vector<std::string>& arguments);

/// The plan of the shim of one rank.
struct ShimPlan {
  RankPlan rank;            ///< its place on this machine
  Environment environment;  ///< the whole one of its program
};

/// Plans one task of srun or mpirun, which `identity` describes. Its program inherits `inherited`
/// and gets the variables of its device; under glaunch also the variables of its identity, else the
/// library finds that itself. Throws: InvalidArgument if the machine has no place for it.
[[nodiscard]] ShimPlan plan_shim(const PlacementOptions& options, const Machine& machine,
                                 const ProcessIdentity& identity, const Environment& inherited);

/// `glaunch shim`: becomes one rank of a job that srun or mpirun started. Under glaunch it first
/// waits until the shims of all ranks are there.
extern const Command kShimCommand;

}  // namespace gantry::launcher
