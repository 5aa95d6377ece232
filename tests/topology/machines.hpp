// Machines that are written down, for tests of plans.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gantry/device/topology.hpp>

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
[[nodiscard]] Topology host_of(const Processors& processors);

/// Every written-down machine, with its name.
[[nodiscard]] std::vector<std::pair<std::string, Topology>> machines();
/// One of them.
[[nodiscard]] Topology machine(const std::string& name);

/// The plan as text, for golden files: decisions, ranks, warnings.
[[nodiscard]] std::string plan_text(const Plan& plan);

}  // namespace gantry::testing
