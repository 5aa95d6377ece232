#include "machine/topology/pci_facts.hpp"

#include <algorithm>
#include <cstdlib>

namespace gantry::machine {
namespace {

int count_between(const Topology::Gpu& a, const Topology::Gpu& b) {
  int direct = 0;
  int switched_a = 0;
  int switched_b = 0;
  for (const Topology::NvLinks& links : *a.nvlinks) {
    if (links.end == Topology::LinkEnd::gpu && links.bus_id == b.bus_id) direct += links.count;
    if (links.end == Topology::LinkEnd::nvswitch) switched_a += links.count;
  }
  for (const Topology::NvLinks& links : *b.nvlinks) {
    if (links.end == Topology::LinkEnd::nvswitch) switched_b += links.count;
  }
  return direct + std::min(switched_a, switched_b);
}

// True if the ends of a GPU's links are known: a link with an unknown end may lead anywhere.
bool tells(const Topology::Gpu& gpu) {
  return gpu.nvlinks &&
         std::none_of(gpu.nvlinks->begin(), gpu.nvlinks->end(), [](const Topology::NvLinks& links) {
           return links.end == Topology::LinkEnd::unknown;
         });
}

}  // namespace

std::optional<int> pcie_generation(std::string_view speed) {
  const double rate = std::strtod(std::string(speed).c_str(), nullptr);
  const double rates[] = {2.5, 5, 8, 16, 32, 64, 128};
  for (int i = 0; i < 7; ++i) {
    if (rate == rates[i]) return i + 1;
  }
  return std::nullopt;
}

std::optional<PciPath> path_between(const Fact<PciChain>& a, const Fact<int>& node_a,
                                    const Fact<PciChain>& b, const Fact<int>& node_b) {
  if (a && b && !a->empty() && !b->empty() && a->front() == b->front()) {
    const auto [end_a, end_b] = std::mismatch(a->begin(), a->end(), b->begin(), b->end());
    if (end_a == a->begin() + 1) return PciPath::host_bridge;
    // One port of a switch on each side is one switch.
    const bool one = a->end() - end_a <= 1 && b->end() - end_b <= 1;
    return one ? PciPath::pix : PciPath::pxb;
  }
  if (!node_a || !node_b) return std::nullopt;
  if (*node_a != *node_b) return PciPath::system;
  // Without chains they may have a switch in common.
  if (a && b) return PciPath::node;
  return std::nullopt;
}

void offer(const PciDevice& device, FactSource source, Topology::Gpu& gpu) {
  gpu.node.offer(device.node, source);
  gpu.cpus.offer(device.cpus, source);
  gpu.pci_chain.offer(device.chain, source);
  gpu.pcie_generation.offer(device.generation, source);
  gpu.pcie_width.offer(device.width, source);
  gpu.max_pcie_generation.offer(device.max_generation, source);
  gpu.max_pcie_width.offer(device.max_width, source);
  gpu.pcie_bandwidth.offer(device.bandwidth, source);
  gpu.nvlinks.offer(device.nvlinks, source);
}

void offer(const PciDevice& device, FactSource source, Topology::Nic& nic) {
  nic.node.offer(device.node, source);
  nic.pci_chain.offer(device.chain, source);
}

void derive_links(Topology& topology) {
  const std::size_t count = topology.gpus.size();
  topology.links.resize(count);
  topology.nic_paths.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Topology::Gpu& a = topology.gpus[i];
    topology.links[i].resize(count);
    topology.nic_paths[i].resize(topology.nics.size());
    for (std::size_t j = 0; j < count; ++j) {
      const Topology::Gpu& b = topology.gpus[j];
      Topology::Link& link = topology.links[i][j];
      const bool is_same = i == j || (!a.bus_id.empty() && a.bus_id == b.bus_id);
      if (is_same) {
        link.path.offer(PciPath::same, a.pci_chain.source);
      } else {
        link.path.offer(path_between(a.pci_chain, a.node, b.pci_chain, b.node), a.pci_chain.source);
      }
      if (i == j) continue;
      if (a.is_instance() || b.is_instance()) {
        // MIG has no peer access, by NVLink or otherwise.
        link.nvlinks.offer(0, FactSource::nvml);
        link.peer_access.offer(false, FactSource::nvml);
      }
      if (tells(a) && tells(b)) link.nvlinks.offer(count_between(a, b), a.nvlinks.source);
    }
    for (std::size_t j = 0; j < topology.nics.size(); ++j) {
      const Topology::Nic& nic = topology.nics[j];
      topology.nic_paths[i][j].offer(path_between(a.pci_chain, a.node, nic.pci_chain, nic.node),
                                     a.pci_chain.source);
    }
  }
}

void mark_unknown_nvlinks(Topology& topology, FactSource source) {
  for (std::size_t i = 0; i < topology.links.size(); ++i) {
    for (std::size_t j = 0; j < topology.links[i].size(); ++j) {
      Topology::Link& link = topology.links[i][j];
      if (i != j && !link.nvlinks) link.may_have_nvlinks.offer(true, source);
    }
  }
}

}  // namespace gantry::machine
