// Which GPUs a job gets, in which order.
#pragma once

#include <gantry/machine/topology.hpp>

namespace gantry::machine {

/// Enters `plan.gpus` and the decisions behind it.
/// Throws: InvalidArgument if there are no such GPUs.
void choose_gpus(const Topology& topology, const PlanOptions& options, Plan& plan);

}  // namespace gantry::machine
