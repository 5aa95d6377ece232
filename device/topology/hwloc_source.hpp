// Processors, memory and PCI devices, as hwloc sees them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gantry/device/topology.hpp>

#include "device/topology/pci_facts.hpp"

namespace gantry {

/// What hwloc tells about a machine.
struct HwlocFacts {
  std::string problem;  ///< why it tells nothing
  std::vector<Topology::NumaNode> nodes;
  std::vector<Topology::Core> cores;
  std::vector<PciDevice> devices;
  std::vector<Topology::Nic> nics;
  CpuSet cpus;                  ///< those that the control group leaves
  bool is_this_system = false;  ///< false for a machine from a file or a text
};

/// Reads this machine, or the one of an hwloc XML file; HWLOC_XMLFILE, HWLOC_SYNTHETIC and
/// HWLOC_FSROOT select another one, too. `with_devices`: PCI devices as well.
[[nodiscard]] HwlocFacts read_hwloc(const std::string& xml_file, bool with_devices);

}  // namespace gantry
