#include "machine/topology/sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "machine/nvml/nvml.hpp"

namespace gantry::machine {
namespace {

constexpr FactSource kSource = FactSource::nvml;

// A GPU in the list, and the handle that knows its links: for an instance, its GPU's.
struct Listed {
  NvmlDevice device;
  NvmlDevice whole;
};

std::optional<int> as_int(std::optional<unsigned> value) {
  if (!value) return std::nullopt;
  return static_cast<int>(*value);
}

Topology::LinkEnd end_of(NvmlRemote remote) {
  switch (remote) {
    case NvmlRemote::gpu:
      return Topology::LinkEnd::gpu;
    case NvmlRemote::nvswitch:
      return Topology::LinkEnd::nvswitch;
    case NvmlRemote::npu:
      return Topology::LinkEnd::processor;
    case NvmlRemote::unknown:
      break;
  }
  return Topology::LinkEnd::unknown;
}

PciPath path_of(NvmlAncestor ancestor) {
  switch (ancestor) {
    case NvmlAncestor::board:
    case NvmlAncestor::one_switch:
      return PciPath::pix;
    case NvmlAncestor::several_switches:
      return PciPath::pxb;
    case NvmlAncestor::host_bridge:
      return PciPath::host_bridge;
    case NvmlAncestor::node:
      return PciPath::node;
    case NvmlAncestor::system:
      break;
  }
  return PciPath::system;
}

void read_nvlinks(const Nvml& nvml, NvmlDevice device, Topology::Gpu& gpu) {
  const std::vector<NvmlLink> links = nvml.links(device);
  std::vector<Topology::NvLinks> ends;
  int inactive = 0;
  for (const NvmlLink& link : links) {
    if (!link.is_active) {
      ++inactive;
      continue;
    }
    Topology::LinkEnd end = end_of(link.remote);
    // A virtual machine hides the switch and its kind.
    if (end == Topology::LinkEnd::unknown && link.remote_bus_id.empty()) {
      end = Topology::LinkEnd::nvswitch;
    }
    // One entry for all switches: a pair of GPUs is connected through every one of them.
    const std::string bus_id =
        end == Topology::LinkEnd::nvswitch ? std::string() : link.remote_bus_id;
    const auto same = std::find_if(ends.begin(), ends.end(), [&](const Topology::NvLinks& one) {
      return one.end == end && one.bus_id == bus_id;
    });
    if (same == ends.end()) {
      ends.push_back({end, bus_id, 1});
    } else {
      ++same->count;
    }
  }
  gpu.nvlinks.offer(std::move(ends), kSource);
  gpu.inactive_nvlinks.offer(inactive, kSource);
}

Topology::Gpu read_gpu(const Nvml& nvml, const Listed& listed) {
  Topology::Gpu gpu;
  gpu.name = nvml.name(listed.whole).value_or("");
  gpu.uuid = nvml.uuid(listed.device).value_or("");
  gpu.bus_id = nvml.pci_bus_id(listed.whole).value_or("");
  const NvmlPcie pcie = nvml.pcie(listed.whole);
  gpu.pcie_generation.offer(as_int(pcie.generation), kSource);
  gpu.pcie_width.offer(as_int(pcie.width), kSource);
  gpu.max_pcie_generation.offer(as_int(pcie.max_generation), kSource);
  gpu.max_pcie_width.offer(as_int(pcie.max_width), kSource);
  if (const auto memory = nvml.memory(listed.device)) {
    gpu.memory_bytes.offer(memory->total, kSource);
    gpu.used_memory_bytes.offer(memory->used, kSource);
  }
  if (const auto processes = nvml.processes(listed.device)) {
    gpu.processes.offer(static_cast<int>(processes->size()), kSource);
  }
  if (const auto capability = nvml.compute_capability(listed.whole)) {
    gpu.compute_capability.offer(fmt::format("{}.{}", (*capability)[0], (*capability)[1]), kSource);
  }
  return gpu;
}

// NUMA node and CPUs, where NVML names one node of the host.
void read_locality(const Nvml& nvml, NvmlDevice device, const Topology& topology,
                   Topology::Gpu& gpu) {
  if (const auto near = nvml.near_nodes(device)) {
    std::vector<int> known;
    for (const Topology::NumaNode& node : topology.nodes) {
      if (std::find(near->begin(), near->end(), node.id) != near->end()) known.push_back(node.id);
    }
    if (known.size() == 1) gpu.node.offer(known.front(), kSource);
  }
  const auto near = nvml.near_cpus(device);
  if (!near || near->empty()) return;
  const CpuSet cpus(*near);
  std::size_t touched = 0;
  for (const Topology::NumaNode& node : topology.nodes) touched += node.cpus.intersects(cpus);
  // All nodes of several is no answer.
  if (touched > 0 && (touched < topology.nodes.size() || topology.nodes.size() == 1)) {
    gpu.cpus.offer(cpus, kSource);
  }
}

void read_pairs(const Nvml& nvml, const std::vector<Listed>& listed, Topology& topology) {
  const std::size_t count = listed.size();
  topology.links.assign(count, std::vector<Topology::Link>(count));
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      if (listed[i].whole == listed[j].whole) continue;
      Topology::Link& link = topology.links[i][j];
      if (const auto ancestor = nvml.common_ancestor(listed[i].whole, listed[j].whole)) {
        link.path.offer(path_of(*ancestor), kSource);
      }
      const bool whole = listed[i].device == listed[i].whole && listed[j].device == listed[j].whole;
      if (!whole) continue;  // instances have no peers
      const auto forth = nvml.peer_access(listed[i].whole, listed[j].whole);
      const auto back = nvml.peer_access(listed[j].whole, listed[i].whole);
      if (forth && back) link.peer_access.offer(*forth && *back, kSource);
    }
  }
}

}  // namespace

void read_nvml(const std::string& library_path, bool with_links, Topology& topology) {
  const Nvml nvml(library_path);
  const NvmlResult<int> count = nvml.device_count();
  if (!nvml.problem().empty()) {
    topology.why_no_gpu = nvml.problem();
  } else if (!count) {
    topology.why_no_gpu = fmt::format("NVML cannot count devices: {}", count.problem);
  }
  topology.driver_version.offer(nvml.driver_version().value, kSource);
  std::vector<Listed> listed;
  for (int i = 0; i < count.value_or(0); ++i) {
    const NvmlResult<NvmlDevice> gpu = nvml.device(i);
    if (!gpu) {
      topology.warnings.push_back(fmt::format("GPU {} cannot be used: {}", i, gpu.problem));
      continue;
    }
    if (!nvml.is_divided(*gpu).value_or(false)) {
      listed.push_back({*gpu, *gpu});
      continue;
    }
    for (const NvmlDevice instance : nvml.mig_instances(*gpu).value_or({})) {
      listed.push_back({instance, *gpu});
    }
  }
  for (const Listed& one : listed) {
    Topology::Gpu gpu = read_gpu(nvml, one);
    read_locality(nvml, one.whole, topology, gpu);
    if (with_links) read_nvlinks(nvml, one.whole, gpu);
    topology.gpus.push_back(std::move(gpu));
  }
  if (with_links) read_pairs(nvml, listed, topology);
  if (!listed.empty()) topology.gpu_source = kSource;
  if (listed.empty() && topology.why_no_gpu.empty()) topology.why_no_gpu = "NVML shows no GPU";
}

}  // namespace gantry::machine
