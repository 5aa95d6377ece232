// Topologies from files, and their changes of a machine's topology.
#pragma once

#include <string>

#include <gantry/machine/topology.hpp>

#include "machine/topology/sources.hpp"

namespace gantry::machine {

/// The machine that hwloc describes, with NVIDIA's GPUs in the PCI tree.
[[nodiscard]] Topology topology_of(const HwlocFacts& facts);

/// Reads gantry's JSON, hwloc's XML or NCCL's XML.
/// Throws: InvalidArgument "topology file '…': …".
[[nodiscard]] Topology read_topology_file(const std::string& path);

/// Escapes every text of the topology, so that none moves a terminal's cursor or the reader's eye.
void make_printable(Topology& topology);

/// How facts of a file meet facts of the machine.
enum class Precedence { file, machine };

/// Enters the facts of `file` about the machine and about the GPUs that are in both: with the same
/// UUID or bus id, or with `by_position` the same number.
void merge(const Topology& file, Precedence precedence, bool by_position, Topology& topology);

/// Fills NUMA nodes from CPUs and CPUs from NUMA nodes.
void complete_localities(Topology& topology);

}  // namespace gantry::machine
