// CPUs and memory of the ranks.
#pragma once

#include <gantry/machine/topology.hpp>

namespace gantry::machine {

/// Physical cores with a CPU that is allowed; the CPUs of each are the allowed ones.
[[nodiscard]] std::vector<CpuSet> allowed_cores(const Topology& topology);

/// CPUs that ranks may use: those that are allowed, or else all that are known.
[[nodiscard]] CpuSet usable_cpus(const Topology& topology);

/// Enters CPUs, memory node, threads and reasons of `plan.ranks`, and the decisions behind them.
/// Throws: InvalidArgument if the binding that `options` ask for is not possible.
void place_cpus(const Topology& topology, const PlanOptions& options, Plan& plan);

}  // namespace gantry::machine
