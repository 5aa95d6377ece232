// The part of a launch that happens on the machine of each rank.
#pragma once

#include <gantry/job/process_identity.hpp>

#include "launcher/options/environment.hpp"
#include "launcher/options/options.hpp"
#include "launcher/placement/plan.hpp"

namespace gantry::launcher {

/// The plan of the shim of one rank.
struct ShimPlan {
  RankPlan rank;            ///< its place on this machine
  Environment environment;  ///< the whole one of its program
};

/// Plans one task of srun or mpirun, which `identity` describes. Its program inherits `inherited`
/// and gets the variables of its device; under glaunch also the variables of its identity, else the
/// library finds that itself. Throws: InvalidArgument if the machine has no place for it.
[[nodiscard]] ShimPlan plan_shim(const Options& options, const Machine& machine,
                                 const ProcessIdentity& identity, const Environment& inherited);

/// `glaunch shim`: becomes the program, with that environment. Under glaunch it first waits until
/// the shims of all ranks are there. Returns an exit code if the program cannot be executed.
/// Throws: InvalidArgument; Error.
[[nodiscard]] int run_shim(const Options& options, const Machine& machine,
                           const Environment& environment);

}  // namespace gantry::launcher
