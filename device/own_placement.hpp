// The place of this process on its machine.
#pragma once

#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/machine/topology.hpp>

namespace gantry {

/// The machine with the visible devices, in the order of cuda:0, cuda:1, … Read once.
/// Throws: InvalidArgument if GANTRY_TOPO_FILE cannot be used.
[[nodiscard]] const machine::Topology& visible_topology();
/// The NUMA node of each visible device; -1 for one that is unknown, and for simulated devices.
[[nodiscard]] std::vector<int> device_nodes();

/// A rank of a job, among the ranks of its machine.
struct LocalRank {
  int rank = 0;
  int local_rank = 0;
  int local_size = 1;
  bool is_placed = false;  ///< its launcher has chosen its CPUs with gantry's planner
};

/// Binds the calling thread, and those that it starts, as GANTRY_BIND says. Without the variable it
/// changes nothing, and warns if the CPUs of the process are far from its device.
/// Throws: InvalidArgument if GANTRY_BIND cannot be met.
void place_process(const LocalRank& rank, Device device);

}  // namespace gantry
