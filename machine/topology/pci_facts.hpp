// Facts of a source about PCI devices, and paths between them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/machine/topology.hpp>

namespace gantry::machine {

/// Bus ids from the host bridge to a device, without the device.
using PciChain = std::vector<std::string>;

/// One PCI device.
struct PciDevice {
  std::string bus_id;  ///< "0000:1b:00.0"
  unsigned vendor = 0;
  unsigned device_class = 0;  ///< 0x0302 for a GPU without a display
  std::optional<int> node;
  std::optional<CpuSet> cpus;
  std::optional<PciChain> chain;
  std::optional<int> generation, width, max_generation, max_width;
  std::optional<double> bandwidth;  ///< GB/s of the link, where its lanes are not told
  std::string name;                 ///< model of a GPU; empty if it is not told
  std::string uuid;                 ///< of a GPU; empty if it is not told
  std::optional<std::vector<Topology::NvLinks>> nvlinks;
};

/// True for a GPU of NVIDIA.
[[nodiscard]] inline bool is_nvidia_gpu(const PciDevice& device) {
  return device.vendor == 0x10de && device.device_class >> 8U == 0x03;
}

/// PCIe generation of a speed in GT/s, such as "16.0 GT/s PCIe"; none for another text.
[[nodiscard]] std::optional<int> pcie_generation(std::string_view speed);

/// The path between two devices with these chains and NUMA nodes; none if they do not tell.
[[nodiscard]] std::optional<PciPath> path_between(const Fact<PciChain>& a, const Fact<int>& node_a,
                                                  const Fact<PciChain>& b, const Fact<int>& node_b);

/// Offers the facts of a PCI device to a GPU or a network interface.
void offer(const PciDevice& device, FactSource source, Topology::Gpu& gpu);
void offer(const PciDevice& device, FactSource source, Topology::Nic& nic);

/// Offers the paths that chains and NUMA nodes give to every pair, and the NVLinks of pairs that
/// the links of single GPUs give.
void derive_links(Topology& topology);

/// Notes the pairs whose NVLinks `source`, which told the rest, leaves open.
void mark_unknown_nvlinks(Topology& topology, FactSource source);

}  // namespace gantry::machine
