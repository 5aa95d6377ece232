#include "machine/topology/sources.hpp"

#include <fmt/format.h>
#include <hwloc.h>
#include <hwloc/distances.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/env/env_check.hpp"

namespace gantry::machine {
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

// Nodes that hwloc knows to be slower, faster or other memory than the processors' own come last.
int rank_of_memory(hwloc_obj_t node) {
  if (node->subtype == nullptr) return 1;
  return std::strcmp(node->subtype, "DRAM") == 0 ? 0 : 2;
}

// Note [Nodes without CPUs]
// Memory of GPUs, CXL and NVDIMM memory, HBM and MCDRAM are NUMA nodes on some machines. hwloc
// gives them the CPUs of the object that they hang on, so that their sets overlap with the sets of
// the nodes to which these CPUs belong. A node of which every CPU is in a node before it has none
// of its own. Before are nodes of DRAM, then smaller ones, then lower numbers.
std::vector<hwloc_obj_t> nodes_with_cpus(hwloc_topology_t topology) {
  std::vector<hwloc_obj_t> nodes;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    const bool of_gpu = node->subtype != nullptr && std::strcmp(node->subtype, "GPUMemory") == 0;
    if (!of_gpu && hwloc_bitmap_weight(node->cpuset) > 0) nodes.push_back(node);
  }
  const auto rank = [](hwloc_obj_t one) {
    return std::tuple(rank_of_memory(one), hwloc_bitmap_weight(one->cpuset), number_of(one));
  };
  std::sort(nodes.begin(), nodes.end(), [&](auto a, auto b) { return rank(a) < rank(b); });
  CpuSet taken;
  std::erase_if(nodes, [&](hwloc_obj_t one) {
    const CpuSet cpus = cpus_of(one->cpuset);
    if (cpus.is_subset_of(taken)) return true;
    taken = taken | cpus;
    return false;
  });
  return nodes;
}

void read_nodes(hwloc_topology_t topology, HwlocFacts& facts) {
  for (const hwloc_obj_t node : nodes_with_cpus(topology)) {
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

std::string info_of(hwloc_obj_t object, const char* name) {
  const char* const value = hwloc_obj_get_info_by_name(object, name);
  return value == nullptr ? std::string() : std::string(value);
}

// The facts that the devices of the operating system below a GPU tell about it.
void read_gpu(hwloc_obj_t object, PciDevice& device) {
  if (!is_nvidia_gpu(device)) return;
  const float speed = object->attr->pcidev.linkspeed;
  if (std::isfinite(speed) && speed > 0) device.bandwidth = speed;
  device.name = info_of(object, "PCIDevice");
  for (hwloc_obj_t at = object->io_first_child; at != nullptr; at = at->next_sibling) {
    if (at->type != HWLOC_OBJ_OS_DEVICE) continue;
    if (std::string model = info_of(at, "GPUModel"); !model.empty()) device.name = std::move(model);
    if (device.uuid.empty()) device.uuid = info_of(at, "NVIDIAUUID");
  }
}

PciDevice read_device(hwloc_topology_t topology, hwloc_obj_t object, const HwlocFacts& facts) {
  PciDevice device;
  device.bus_id = bus_id_of(object->attr->pcidev);
  device.vendor = object->attr->pcidev.vendor_id;
  device.device_class = object->attr->pcidev.class_id;
  read_gpu(object, device);
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

// The PCI device that an object of a matrix is or belongs to.
hwloc_obj_t pci_device_of(hwloc_obj_t object) {
  while (object != nullptr && object->type == HWLOC_OBJ_OS_DEVICE) object = object->parent;
  return object != nullptr && object->type == HWLOC_OBJ_PCI_DEVICE ? object : nullptr;
}

// hwloc adds up the links of a pair: 20000 MB/s for each NVLink of the first version, 25000 for
// each later one.
int count_links(hwloc_uint64_t bandwidth, bool is_first_version) {
  constexpr hwloc_uint64_t kMost = std::numeric_limits<int>::max();
  const hwloc_uint64_t one = is_first_version ? 20000 : 25000;
  return static_cast<int>(std::min((bandwidth + one / 2) / one, kMost));
}

void read_nvlinks(const hwloc_distances_s& matrix, std::vector<PciDevice>& devices) {
  const auto value = [&](unsigned i, unsigned j) {
    return matrix.values[std::size_t{i} * matrix.nbobjs + j];
  };
  bool is_first_version = true;
  for (unsigned i = 0; i < matrix.nbobjs; ++i) {
    for (unsigned j = 0; j < matrix.nbobjs; ++j) {
      if (i != j && value(i, j) % 20000 != 0) is_first_version = false;
    }
  }
  const auto device_of = [&](unsigned i) {
    const hwloc_obj_t pci = pci_device_of(matrix.objs[i]);
    const std::string bus_id = pci == nullptr ? "" : bus_id_of(pci->attr->pcidev);
    return std::find_if(devices.begin(), devices.end(),
                        [&](const PciDevice& one) { return one.bus_id == bus_id; });
  };
  for (unsigned i = 0; i < matrix.nbobjs; ++i) {
    const auto gpu = device_of(i);
    if (gpu == devices.end() || !is_nvidia_gpu(*gpu)) continue;
    std::vector<Topology::NvLinks> ends;
    int switched = 0;
    for (unsigned j = 0; j < matrix.nbobjs; ++j) {
      const int count = i == j ? 0 : count_links(value(i, j), is_first_version);
      if (count == 0) continue;
      const auto end = device_of(j);
      if (end == devices.end()) {
        const bool is_processor = matrix.objs[j] != nullptr && matrix.objs[j]->cpuset != nullptr;
        ends.push_back(
            {is_processor ? Topology::LinkEnd::processor : Topology::LinkEnd::unknown, "", count});
      } else if (is_nvidia_gpu(*end)) {
        ends.push_back({Topology::LinkEnd::gpu, end->bus_id, count});
      } else {
        switched += count;
      }
    }
    // One entry for all switches: a pair of GPUs is connected through every one of them.
    if (switched > 0) ends.push_back({Topology::LinkEnd::nvswitch, "", switched});
    gpu->nvlinks = std::move(ends);
  }
}

void read_nvlinks(hwloc_topology_t topology, std::vector<PciDevice>& devices) {
  unsigned count = 1;
  hwloc_distances_s* matrix = nullptr;
  const int failed = hwloc_distances_get_by_name(topology, "NVLinkBandwidth", &count, &matrix, 0);
  if (failed != 0 || count == 0 || matrix == nullptr) return;
  const auto release = [&](hwloc_distances_s* one) { hwloc_distances_release(topology, one); };
  const std::unique_ptr<hwloc_distances_s, decltype(release)> held(matrix, release);
  read_nvlinks(*matrix, devices);
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
  read_nvlinks(topology, facts.devices);
}

// hwloc unloads its plugins with the last topology. LeakSanitizer then reports memory that
// libpciaccess keeps. So one topology stays, which nothing else reads.
void keep_plugins() {
  [[gnu::used]] static const hwloc_topology_t kept = [] {
    hwloc_topology_t topology = nullptr;
    return hwloc_topology_init(&topology) == 0 ? topology : nullptr;
  }();
}

// Some failures of hwloc set no errno.
std::string cause_text() {
  return errno == 0 ? std::string("it does not tell why") : std::string(std::strerror(errno));
}

}  // namespace

int hwloc_version() { return static_cast<int>(hwloc_get_api_version() >> 16U); }

HwlocFacts read_hwloc(const std::string& xml, bool with_devices) {
  HwlocFacts facts;
  // hwloc takes plugins from the folder that a variable names.
  if (env::is_privileged()) {
    facts.problem = "hwloc is not used in a program with more rights than its caller";
    return facts;
  }
  keep_plugins();
  hwloc_topology_t raw = nullptr;
  errno = 0;
  if (hwloc_topology_init(&raw) != 0) {
    facts.problem = fmt::format("hwloc does not start: {}", cause_text());
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
  // The buffer of hwloc ends with a zero byte.
  if (!xml.empty() &&
      hwloc_topology_set_xmlbuffer(raw, xml.c_str(), static_cast<int>(xml.size() + 1)) != 0) {
    facts.problem = "hwloc cannot read it";
    return facts;
  }
  errno = 0;
  if (hwloc_topology_load(raw) != 0) {
    facts.problem = fmt::format("hwloc cannot load it: {}", cause_text());
    return facts;
  }
  facts.is_this_system = hwloc_topology_is_thissystem(raw) != 0;
  facts.cpus = cpus_of(hwloc_topology_get_allowed_cpuset(raw));
  read_nodes(raw, facts);
  read_cores(raw, facts);
  if (with_devices) read_devices(raw, facts);
  return facts;
}

}  // namespace gantry::machine
