#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/machine/cpu_set.hpp>
#include <gantry/machine/plan.hpp>
#include <gantry/machine/visible_devices.hpp>

namespace gantry::machine {

/// The source of a fact of a Topology.
/// @since 0.3
enum class FactSource { none, hwloc, nvml, sysfs, nccl_xml, file, system, simulated };

/// Name of a source: "hwloc", "nvml", "sysfs", "nccl-xml", "file", "system", "simulated"; "?" for
/// none.
/// @since 0.3
[[nodiscard]] GANTRY_API std::string_view name(FactSource source);

/// A fact and its source. A fact without a value is unknown, which is never the same as 0.
/// @since 0.3
template <class T>
struct Fact {
  std::optional<T> value;                ///< nullopt: unknown
  FactSource source = FactSource::none;  ///< of the value

  /// True if the fact is known.
  explicit operator bool() const { return value.has_value(); }
  /// The value. Precondition: it is known.
  /// @{
  const T& operator*() const { return *value; }
  const T* operator->() const { return &*value; }
  /// @}
  /// Sets the value and its source, unless the fact is known already.
  void offer(std::optional<T> candidate, FactSource from) {
    if (value || !candidate) return;
    value = std::move(candidate);
    source = from;
  }
  friend bool operator==(const Fact&, const Fact&) = default;
};

/// The component that a path through PCI and the processors has to cross. Enumerators go from near
/// to far.
/// @since 0.3
enum class PciPath {
  same,         ///< the same device
  pix,          ///< one PCIe switch
  pxb,          ///< several PCIe switches
  host_bridge,  ///< a host bridge, inside a NUMA node
  node,         ///< the interconnect between host bridges of a NUMA node
  system,       ///< the interconnect between NUMA nodes
};

/// The spelling of nvidia-smi: "X", "PIX", "PXB", "PHB", "NODE", "SYS".
/// @since 0.3
[[nodiscard]] GANTRY_API std::string_view name(PciPath path);

/// A machine as pure data: processors, memory, GPUs, network interfaces and the links between them.
///
/// Its texts are fit for a terminal: control characters of a file or a driver are there as "\\x1b".
/// @since 0.3
struct Topology {
  /// A NUMA node with memory of the host and CPUs of its own. Nodes of memory alone (CXL, HBM,
  /// NVDIMM, GPUs) are no places to run and are left out.
  struct NumaNode {
    int id = 0;                        ///< number of the operating system
    int package = 0;                   ///< number of the processor package
    CpuSet cpus;                       ///< CPUs of the node
    Fact<std::uint64_t> memory_bytes;  ///< capacity
    friend bool operator==(const NumaNode&, const NumaNode&) = default;
  };
  /// A physical core. Its CPUs are its hardware threads.
  struct Core {
    CpuSet cpus;           ///< hardware threads
    int package = 0;       ///< number of the processor package
    int node = -1;         ///< NumaNode::id; -1: none
    int cache_group = -1;  ///< cores with one number share a last-level cache; -1: unknown
    friend bool operator==(const Core&, const Core&) = default;
  };
  /// The kind of the far end of an NVLink.
  enum class LinkEnd { gpu, nvswitch, processor, unknown };
  /// NVLinks from a GPU to one place.
  struct NvLinks {
    LinkEnd end = LinkEnd::unknown;  ///< kind of that place
    std::string bus_id;              ///< of that place; empty if it is hidden
    int count = 0;                   ///< number of links
    friend bool operator==(const NvLinks&, const NvLinks&) = default;
  };
  /// A GPU, or one instance of a GPU in MIG mode.
  struct Gpu {
    std::string name;    ///< model
    std::string uuid;    ///< "GPU-…" or "MIG-…"
    std::string bus_id;  ///< "0000:1b:00.0"
    Fact<int> node;      ///< NumaNode::id
    Fact<CpuSet> cpus;   ///< CPUs near the GPU, also those that this process may not use
    /// Bus ids from the host bridge to the device, without the device.
    Fact<std::vector<std::string>> pci_chain;
    Fact<int> pcie_generation;              ///< of the link now; it may rise under load
    Fact<int> pcie_width;                   ///< lanes of the link now
    Fact<int> max_pcie_generation;          ///< that GPU and slot allow
    Fact<int> max_pcie_width;               ///< lanes that GPU and slot allow
    Fact<double> pcie_bandwidth;            ///< GB/s of the link, from a source that tells no lanes
    Fact<std::uint64_t> memory_bytes;       ///< capacity
    Fact<std::uint64_t> used_memory_bytes;  ///< in use by all processes
    Fact<int> processes;                    ///< number of processes that use the GPU
    Fact<std::string> compute_capability;   ///< "9.0"
    Fact<std::vector<NvLinks>> nvlinks;     ///< active links, by the place they lead to
    Fact<int> inactive_nvlinks;             ///< number of links that are down
    /// True for an instance of a GPU in MIG mode.
    [[nodiscard]] bool is_instance() const { return uuid.starts_with("MIG-"); }
    friend bool operator==(const Gpu&, const Gpu&) = default;
  };
  /// A network interface.
  struct Nic {
    std::string name;                          ///< "mlx5_0", "eth0"; empty: only its place is known
    std::string bus_id;                        ///< "0000:1b:00.0"
    Fact<int> node;                            ///< NumaNode::id
    Fact<std::vector<std::string>> pci_chain;  ///< as Gpu::pci_chain
    friend bool operator==(const Nic&, const Nic&) = default;
  };
  /// The connection of two GPUs.
  struct Link {
    Fact<int> nvlinks;            ///< direct NVLinks, or those through switches
    Fact<bool> may_have_nvlinks;  ///< true: a file describes the pair, but not its NVLinks
    Fact<PciPath> path;           ///< the way without NVLink
    Fact<bool> peer_access;       ///< whether each can use the other's memory
    /// True if neither NVLinks nor their absence are known, so that `path` may not be the way.
    [[nodiscard]] bool is_way_unknown() const { return !nvlinks && may_have_nvlinks.value == true; }
    friend bool operator==(const Link&, const Link&) = default;
  };

  std::string host;             ///< name of the machine
  std::vector<NumaNode> nodes;  ///< by number
  std::vector<Core> cores;      ///< of all packages
  std::vector<Gpu> gpus;        ///< in PCI order, or in the order that keep_gpus() was given
  std::vector<Nic> nics;        ///< in PCI order
  std::vector<std::vector<Link>> links;               ///< [gpu][gpu]
  std::vector<std::vector<Fact<PciPath>>> nic_paths;  ///< [gpu][nic]

  Fact<CpuSet> allowed_cpus;  ///< CPUs that the control group and the affinity mask leave
  Fact<double> cpu_quota;     ///< CPU time that the control group grants, in CPUs; none: no limit
  Fact<std::string> virtualization;  ///< "none", or the name of a hypervisor
  Fact<std::string> container;       ///< "none", or the kind of container
  Fact<std::uint64_t> shm_bytes;     ///< free bytes in /dev/shm
  Fact<std::string> driver_version;  ///< of the NVIDIA driver

  FactSource gpu_source = FactSource::none;  ///< where the list of GPUs comes from
  std::string why_no_gpu;                    ///< one clause, if there is no GPU
  std::vector<std::string> warnings;         ///< facts that a source failed to give, one line each

  friend bool operator==(const Topology&, const Topology&) = default;
};

/// The sources of discover_topology(). An empty text means the default source.
/// @since 0.3
struct TopologyOptions {
  std::string file;        ///< JSON of this class, hwloc's XML or NCCL's XML; its facts come first
  std::string sysfs_root;  ///< in place of /sys
  std::string nvml_path;   ///< in place of libnvidia-ml.so.1
  /// Simulated devices in place of GPUs; 0: those of GANTRY_SIM_DEVICES, unless `nvml_path` or
  /// `known_gpus` names GPUs.
  int simulated_gpus = 0;
  /// GPUs that the program knows already, in their order. NVML is then not queried. Simulated
  /// devices get the position that `file` gives to the GPU of the same number.
  std::vector<DeviceIdentity> known_gpus;
  bool skip_gpus = false;   ///< processors and memory only
  bool skip_links = false;  ///< GPUs without the links between them
};

/// The options that GANTRY_TOPO_FILE, GANTRY_SYSFS_ROOT, GANTRY_NVML_PATH and GANTRY_SIM_DEVICES
/// select. Throws: InvalidArgument.
/// @since 0.3
[[nodiscard]] GANTRY_API TopologyOptions topology_options_from_environment();

/// Describes this machine. Never initialises CUDA or another GPU runtime.
///
/// Sources: hwloc, NVML, sysfs, NCCL's topology file of virtual machines, and `options.file`. Facts
/// of the file replace the machine's facts. A GPU of the file is matched by UUID or bus id, and by
/// number with a simulated device. If the machine has no GPU, the result has the GPUs of the file.
/// Throws: InvalidArgument if the file cannot be used.
/// @since 0.3
[[nodiscard]] GANTRY_API Topology discover_topology(const TopologyOptions& options = {});

/// The topology with these GPUs only, in this order. Throws: IndexError.
/// @since 0.3
[[nodiscard]] GANTRY_API Topology keep_gpus(const Topology& topology, std::span<const int> gpus);

/// JSON of the topology, schema 1. `redact` replaces the names of the host and UUIDs by numbers.
/// @since 0.3
[[nodiscard]] GANTRY_API std::string topology_json(const Topology& topology, bool redact = false);
/// Reads that JSON. Throws: InvalidArgument that names the place of the error.
/// @since 0.3
[[nodiscard]] GANTRY_API Topology parse_topology_json(std::string_view text);

}  // namespace gantry::machine
