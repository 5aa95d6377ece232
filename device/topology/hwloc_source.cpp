#include "device/topology/sources.hpp"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace gantry {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Handle = std::unique_ptr<hwloc_topology, Destroy>;

CpuSet cpus_of(hwloc_const_bitmap_t bitmap) {
  std::vector<int> cpus;
  if (bitmap == nullptr || hwloc_bitmap_weight(bitmap) < 0) return {};
  for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0; cpu = hwloc_bitmap_next(bitmap, cpu)) {
    cpus.push_back(cpu);
  }
  return CpuSet(std::move(cpus));
}

int number_of(hwloc_obj_t object) {
  if (object == nullptr) return -1;
  return static_cast<int>(object->os_index == HWLOC_UNKNOWN_INDEX ? object->logical_index
                                                                  : object->os_index);
}

std::string bus_id_of(const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus, pci.dev, pci.func);
}

// Memory of GPUs is a NUMA node on some machines; no rank runs there.
bool is_host_memory(hwloc_obj_t node) {
  const bool of_gpu = node->subtype != nullptr && std::strcmp(node->subtype, "GPUMemory") == 0;
  return !of_gpu && hwloc_bitmap_weight(node->cpuset) > 0;
}

void read_nodes(hwloc_topology_t topology, HwlocFacts& facts) {
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    if (!is_host_memory(node)) continue;
    Topology::NumaNode entry;
    entry.id = number_of(node);
    entry.package = number_of(hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, node));
    entry.cpus = cpus_of(node->cpuset);
    entry.memory_bytes.offer(node->attr->numanode.local_memory, FactSource::hwloc);
    facts.nodes.push_back(std::move(entry));
  }
  std::sort(facts.nodes.begin(), facts.nodes.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
}

void read_cores(hwloc_topology_t topology, HwlocFacts& facts) {
  // Some virtual machines tell no cores.
  const auto type =
      hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr) {
    Topology::Core core;
    core.cpus = cpus_of(object->cpuset);
    if (core.cpus.empty()) continue;
    core.package = number_of(hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object));
    const hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_L3CACHE, object);
    if (cache != nullptr) core.cache_group = static_cast<int>(cache->logical_index);
    for (const Topology::NumaNode& node : facts.nodes) {
      if (core.node < 0 && core.cpus.is_subset_of(node.cpus)) core.node = node.id;
    }
    facts.cores.push_back(std::move(core));
  }
}

// Bridges above an object, the host bridge first.
PciChain chain_of(hwloc_obj_t object) {
  PciChain chain;
  for (hwloc_obj_t at = object->parent; at != nullptr && at->type == HWLOC_OBJ_BRIDGE;
       at = at->parent) {
    const hwloc_obj_attr_u::hwloc_bridge_attr_s& bridge = at->attr->bridge;
    chain.push_back(bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST
                        ? fmt::format("pci{:04x}:{:02x}", bridge.downstream.pci.domain,
                                      bridge.downstream.pci.secondary_bus)
                        : bus_id_of(bridge.upstream.pci));
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

PciDevice read_device(hwloc_topology_t topology, hwloc_obj_t object, const HwlocFacts& facts) {
  PciDevice device;
  device.bus_id = bus_id_of(object->attr->pcidev);
  device.vendor = object->attr->pcidev.vendor_id;
  device.device_class = object->attr->pcidev.class_id;
  device.chain = chain_of(object);
  if (device.chain->empty()) device.chain.reset();
  const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, object);
  const CpuSet cpus = place == nullptr ? CpuSet() : cpus_of(place->cpuset);
  std::vector<int> nodes;
  for (const Topology::NumaNode& node : facts.nodes) {
    if (node.cpus.intersects(cpus)) nodes.push_back(node.id);
  }
  // A device below the whole of a machine with several nodes has a place that firmware did not
  // tell.
  const bool is_told = facts.nodes.size() == 1 || nodes.size() < facts.nodes.size();
  if (!is_told || cpus.empty()) return device;
  device.cpus = cpus;
  if (nodes.size() == 1) device.node = nodes.front();
  return device;
}

void read_nic(hwloc_obj_t object, const std::vector<PciDevice>& devices, HwlocFacts& facts) {
  const auto type = object->attr->osdev.type;
  if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) return;
  if (object->name == nullptr) return;
  const hwloc_obj_t parent = object->parent;
  if (parent == nullptr || parent->type != HWLOC_OBJ_PCI_DEVICE) return;
  Topology::Nic nic;
  nic.name = object->name;
  nic.bus_id = bus_id_of(parent->attr->pcidev);
  for (const PciDevice& device : devices) {
    if (device.bus_id == nic.bus_id) offer(device, FactSource::hwloc, nic);
  }
  // One interface for each PCI function. The name for RDMA is the one that NCCL and UCX take.
  for (Topology::Nic& other : facts.nics) {
    if (other.bus_id != nic.bus_id) continue;
    if (type == HWLOC_OBJ_OSDEV_OPENFABRICS) other.name = nic.name;
    return;
  }
  facts.nics.push_back(std::move(nic));
}

void read_devices(hwloc_topology_t topology, HwlocFacts& facts) {
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_pcidev(topology, object)) != nullptr) {
    facts.devices.push_back(read_device(topology, object, facts));
  }
  object = nullptr;
  while ((object = hwloc_get_next_osdev(topology, object)) != nullptr) {
    read_nic(object, facts.devices, facts);
  }
}

// hwloc unloads its plugins with the last topology. LeakSanitizer then reports memory that
// libpciaccess keeps. So one topology stays, which nothing else reads.
void keep_plugins() {
  [[gnu::used]] static const hwloc_topology_t kept = [] {
    hwloc_topology_t topology = nullptr;
    return hwloc_topology_init(&topology) == 0 ? topology : nullptr;
  }();
}

}  // namespace

HwlocFacts read_hwloc(const std::string& xml_file, bool with_devices) {
  keep_plugins();
  HwlocFacts facts;
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    facts.problem = fmt::format("hwloc does not start: {}", std::strerror(errno));
    return facts;
  }
  const Handle topology(raw);
  // These would initialise GPU runtimes. A component that is not built in cannot be forbidden.
  for (const char* component : {"gl", "opencl", "cuda", "nvml", "rsmi", "levelzero"}) {
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  // Without what a control group forbids, a GPU whose node is forbidden would seem to be near
  // another one.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(
      raw, with_devices ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT : HWLOC_TYPE_FILTER_KEEP_NONE);
  if (!xml_file.empty() && hwloc_topology_set_xml(raw, xml_file.c_str()) != 0) {
    facts.problem = "hwloc cannot read it";
    return facts;
  }
  if (hwloc_topology_load(raw) != 0) {
    facts.problem = fmt::format("hwloc cannot load it: {}", std::strerror(errno));
    return facts;
  }
  facts.is_this_system = hwloc_topology_is_thissystem(raw) != 0;
  facts.cpus = cpus_of(hwloc_topology_get_allowed_cpuset(raw));
  read_nodes(raw, facts);
  read_cores(raw, facts);
  if (with_devices) read_devices(raw, facts);
  return facts;
}

}  // namespace gantry
