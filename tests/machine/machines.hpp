// Machines that are written down, for tests of plans.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gantry/machine/topology.hpp>

namespace gantry::testing {

/// How the operating system numbers CPUs.
enum class CpuNumbering {
  linear,       ///< node after node; the second threads of all cores come last
  interleaved,  ///< round-robin over the nodes
};

/// Processors and memory of a machine.
struct Processors {
  int packages = 2;
  int nodes_per_package = 1;
  int cores_per_node = 1;
  int threads_per_core = 2;
  CpuNumbering numbering = CpuNumbering::linear;
};

/// A machine without GPUs.
[[nodiscard]] machine::Topology host_of(const Processors& processors);

/// Every written-down machine, with its name.
[[nodiscard]] std::vector<std::pair<std::string, machine::Topology>> machines();
/// One of them.
[[nodiscard]] machine::Topology machine_named(const std::string& name);

/// The plan as text, for golden files: decisions, ranks, warnings.
[[nodiscard]] std::string plan_text(const machine::Plan& plan);

}  // namespace gantry::testing
