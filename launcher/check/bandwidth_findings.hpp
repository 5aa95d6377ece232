// Findings about a machine from measured bandwidths.
#pragma once

#include <vector>

#include <gantry/machine/topology.hpp>

#include "launcher/check/bandwidths.hpp"
#include "launcher/check/finding.hpp"

namespace gantry::launcher {

/// Findings about ways that are slow, wrong or not measured, and a summary of those that are fine.
/// Numbers of simulated devices are never called slow. A pure function.
[[nodiscard]] std::vector<Finding> find_slow_ways(const machine::Topology& machine,
                                                  const Bandwidths& bandwidths);

/// GB/s in one direction that the NVLinks or the PCIe links between two GPUs promise; nothing if
/// that is unknown.
[[nodiscard]] std::optional<double> promised_between(const machine::Topology& machine,
                                                     std::size_t gpu, std::size_t peer);
/// GB/s in one direction that the PCIe link of a GPU promises, at its highest speed.
[[nodiscard]] std::optional<double> promised_by_pcie(const machine::Topology::Gpu& gpu);

}  // namespace gantry::launcher
