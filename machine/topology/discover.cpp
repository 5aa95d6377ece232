#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/machine/topology.hpp>

#include "core/env/settings.hpp"
#include "machine/nvml/nvml.hpp"
#include "machine/sim_identity.hpp"
#include "machine/topology/pci_facts.hpp"
#include "machine/topology/sources.hpp"
#include "machine/topology/topology_file.hpp"

namespace gantry::machine {
namespace {

void add_gpus(const std::vector<DeviceIdentity>& identities, FactSource source,
              Topology& topology) {
  for (const DeviceIdentity& identity : identities) {
    Topology::Gpu gpu;
    if (source == FactSource::simulated) gpu.name = "Simulated GPU";
    gpu.uuid = identity.uuid;
    gpu.bus_id = identity.pci_bus_id;
    topology.gpus.push_back(std::move(gpu));
  }
  topology.gpu_source = source;
}

// GPUs come from NVML, which shows those that this process may use; hwloc and sysfs see more.
void place_gpus(const HwlocFacts& hwloc, const SysfsSource& sysfs, Topology& topology) {
  for (Topology::Gpu& gpu : topology.gpus) {
    // NVML's own answer is the last one: it names no node of virtual machines and some others.
    const Fact<int> node = std::exchange(gpu.node, {});
    const Fact<CpuSet> cpus = std::exchange(gpu.cpus, {});
    for (const PciDevice& device : hwloc.devices) {
      if (device.bus_id == gpu.bus_id) offer(device, FactSource::hwloc, gpu);
    }
    if (hwloc.problem.empty() && !hwloc.is_this_system && gpu.pci_chain) continue;
    if (const auto device = sysfs.device(gpu.bus_id)) offer(*device, FactSource::sysfs, gpu);
    gpu.node.offer(node.value, node.source);
    gpu.cpus.offer(cpus.value, cpus.source);
  }
}

// `is_same`: sysfs shows the machine that hwloc describes.
void add_nics(const HwlocFacts& hwloc, const SysfsSource& sysfs, bool is_same, Topology& topology) {
  topology.nics = hwloc.nics;
  if (!is_same) return;
  for (Topology::Nic& nic : sysfs.nics()) {
    const bool known =
        std::any_of(topology.nics.begin(), topology.nics.end(),
                    [&](const Topology::Nic& other) { return other.bus_id == nic.bus_id; });
    if (!known) topology.nics.push_back(std::move(nic));
  }
  std::sort(topology.nics.begin(), topology.nics.end(),
            [](const auto& a, const auto& b) { return a.bus_id < b.bus_id; });
}

void read_processors(const HwlocFacts& hwloc, const SysfsSource& sysfs, Topology& topology) {
  topology.nodes = hwloc.nodes;
  topology.cores = hwloc.cores;
  if (topology.nodes.empty()) topology.nodes = sysfs.nodes();
  if (topology.cores.empty()) topology.cores = sysfs.cores(topology.nodes);
  if (hwloc.problem.empty() && !hwloc.is_this_system) {
    topology.allowed_cpus.offer(hwloc.cpus, FactSource::hwloc);
    return;
  }
  CpuSet allowed = current_cpus();
  // hwloc sees what the control group forbids, but not the affinity mask.
  if (!hwloc.cpus.empty() && allowed.intersects(hwloc.cpus)) allowed = allowed & hwloc.cpus;
  topology.allowed_cpus.offer(std::move(allowed), FactSource::system);
  topology.cpu_quota.offer(sysfs.cpu_quota(own_control_group()), FactSource::sysfs);
}

void read_virtual_topology(Topology& topology) {
  std::error_code error;
  if (!std::filesystem::exists(kVirtualTopology, error)) return;
  try {
    merge(read_topology_file(kVirtualTopology), Precedence::machine, false, topology);
  } catch (const InvalidArgument& problem) {
    topology.warnings.emplace_back(problem.what());
  }
}

}  // namespace

TopologyOptions topology_options_from_environment() {
  TopologyOptions options;
  options.file = env::kTopoFile.text();
  options.sysfs_root = env::kSysfsRoot.text();
  options.nvml_path = env::kNvmlPath.text();
  options.simulated_gpus = static_cast<int>(env::kSimDevices.get().value_or(0));
  return options;
}

namespace {

// The devices of a program on simulated devices are its GPUs, unless it names another source.
int count_simulated_gpus(const TopologyOptions& options) {
  if (options.simulated_gpus > 0) return options.simulated_gpus;
  if (options.skip_gpus || !options.known_gpus.empty() || !options.nvml_path.empty()) return 0;
  return static_cast<int>(env::kSimDevices.get().value_or(0));
}

Topology gather(const TopologyOptions& options) {
  std::optional<Topology> file;
  if (!options.file.empty()) file = read_topology_file(options.file);

  Topology topology;
  const int simulated_gpus = count_simulated_gpus(options);
  const bool simulated = simulated_gpus > 0;
  const bool real_gpus = !options.skip_gpus && !simulated;
  const HwlocFacts hwloc = read_hwloc("", real_gpus);
  const SysfsSource sysfs(options.sysfs_root.empty() ? "/sys" : options.sysfs_root);
  read_system(topology);
  read_processors(hwloc, sysfs, topology);
  if (simulated && !options.skip_gpus) {
    add_gpus(
        options.known_gpus.empty() ? sim_device_identities(simulated_gpus) : options.known_gpus,
        FactSource::simulated, topology);
  }
  if (real_gpus) {
    if (options.known_gpus.empty()) {
      read_nvml(options.nvml_path.empty() ? Nvml::kDefaultPath : options.nvml_path,
                !options.skip_links, topology);
    } else {
      add_gpus(options.known_gpus, FactSource::system, topology);
    }
    // A machine from HWLOC_XMLFILE has GPUs, too.
    if (topology.gpus.empty() && hwloc.problem.empty() && !hwloc.is_this_system) {
      Topology described = topology_of(hwloc);
      topology.gpus = std::move(described.gpus);
      topology.gpu_source = described.gpu_source;
    }
    place_gpus(hwloc, sysfs, topology);
    if (!topology.gpus.empty()) {
      // A folder in place of /sys belongs to the machine that hwloc was given.
      const bool is_same =
          !hwloc.problem.empty() || hwloc.is_this_system || !options.sysfs_root.empty();
      add_nics(hwloc, sysfs, is_same, topology);
      if (!file) read_virtual_topology(topology);
    }
  }
  if (file && topology.gpus.empty() && !options.skip_gpus) {
    // The file describes another machine as a whole.
    if (file->host.empty()) file->host = topology.host;
    file->gpu_source = FactSource::file;
    // For those who want to use the GPUs here.
    file->why_no_gpu = topology.why_no_gpu;
    if (!file->allowed_cpus) {
      CpuSet all;
      for (const Topology::NumaNode& node : file->nodes) all = all | node.cpus;
      for (const Topology::Core& core : file->cores) all = all | core.cpus;
      if (!all.empty()) file->allowed_cpus.offer(all, FactSource::file);
    }
    return std::move(*file);
  }
  if (file) merge(*file, Precedence::file, simulated, topology);
  complete_localities(topology);
  derive_links(topology);
  return topology;
}

}  // namespace

Topology discover_topology(const TopologyOptions& options) {
  Topology topology = gather(options);
  make_printable(topology);
  return topology;
}

Topology keep_gpus(const Topology& topology, std::span<const int> gpus) {
  Topology kept = topology;
  kept.gpus.clear();
  kept.links.clear();
  kept.nic_paths.clear();
  const int count = static_cast<int>(topology.gpus.size());
  for (const int gpu : gpus) {
    if (gpu < 0 || gpu >= count) {
      throw IndexError(
          fmt::format("keep_gpus: expected GPUs from 0 to {}, but got {}", count - 1, gpu));
    }
    const auto i = static_cast<std::size_t>(gpu);
    kept.gpus.push_back(topology.gpus[i]);
    kept.nic_paths.push_back(topology.nic_paths[i]);
    std::vector<Topology::Link> row;
    for (const int other : gpus) {
      if (other >= 0 && other < count)
        row.push_back(topology.links[i][static_cast<std::size_t>(other)]);
    }
    kept.links.push_back(std::move(row));
  }
  return kept;
}

}  // namespace gantry::machine
