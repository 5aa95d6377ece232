// Where the facts of a Topology come from: the system, NVML, NCCL's files, hwloc, and /sys.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/machine/topology.hpp>

#include "machine/topology/pci_facts.hpp"

namespace gantry::machine {

/// Enters host name, virtualization, container and /dev/shm.
void read_system(Topology& topology);

/// Adds the GPUs of NVML in PCI order, MIG instances in place of the GPU that they divide, with
/// what NVML tells of them. Sets why_no_gpu if there is none.
void read_nvml(const std::string& library_path, bool with_links, Topology& topology);

/// Where the host of a virtual machine leaves NCCL's topology file.
inline constexpr const char* kVirtualTopology = "/var/run/nvidia-topologyd/virtualTopology.xml";

/// Reads NCCL's XML: processors, PCI tree, GPUs, NVLinks, network interfaces.
/// Throws: InvalidArgument that names the line or the element.
[[nodiscard]] Topology parse_nccl_xml(std::string_view text);

/// Facts of hwloc about a machine.
struct HwlocFacts {
  std::string problem;  ///< why it tells nothing
  std::vector<Topology::NumaNode> nodes;
  std::vector<Topology::Core> cores;
  std::vector<PciDevice> devices;
  std::vector<Topology::Nic> nics;
  CpuSet cpus;                  ///< those that the control group leaves
  bool is_this_system = false;  ///< false for a machine from a file or a text
};

/// Reads this machine, or the one that a text of hwloc's XML describes; HWLOC_XMLFILE,
/// HWLOC_SYNTHETIC and HWLOC_FSROOT select another one, too. `with_devices`: PCI devices as well.
[[nodiscard]] HwlocFacts read_hwloc(const std::string& xml, bool with_devices);

/// The major version of hwloc that reads; 0 without hwloc.
[[nodiscard]] int hwloc_version();

/// Files below /sys, or below another root that looks like it.
class SysfsSource {
 public:
  explicit SysfsSource(std::string root) : root_(std::move(root)) {}

  /// One PCI device; none if there is no such entry.
  [[nodiscard]] std::optional<PciDevice> device(const std::string& bus_id) const;
  /// Interfaces with a PCI device, one for each function.
  [[nodiscard]] std::vector<Topology::Nic> nics() const;
  /// NUMA nodes that have CPUs.
  [[nodiscard]] std::vector<Topology::NumaNode> nodes() const;
  [[nodiscard]] std::vector<Topology::Core> cores(
      const std::vector<Topology::NumaNode>& nodes) const;
  /// CPU time that the control groups of this process grant, in CPUs; none: no limit.
  [[nodiscard]] std::optional<double> cpu_quota(const std::string& own_group) const;

 private:
  std::string root_;
};

/// The control group (version 2) of this process, such as "/user.slice"; empty if there is none.
[[nodiscard]] std::string own_control_group();

}  // namespace gantry::machine
