#include "machine/topology/topology_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/files/regular_file.hpp"
#include "machine/topology/pci_facts.hpp"
#include "machine/topology/sources.hpp"
#include "machine/topology/xml.hpp"

namespace gantry::machine {
namespace {

constexpr std::size_t kMaxBytes = 64U << 20U;
constexpr int kMaxGpus = 256;
constexpr int kMaxNode = 1023;  // Linux has no more
constexpr int kMaxLinks = 1024;

template <class T>
void merge_fact(const Fact<T>& from, Precedence precedence, Fact<T>& to) {
  if (!from) return;
  if (precedence == Precedence::machine) {
    to.offer(from.value, from.source);
  } else if (to.value != from.value) {
    to = {from.value, FactSource::file};
  }
}

void merge_gpu(const Topology::Gpu& from, Precedence precedence, Topology::Gpu& to) {
  merge_fact(from.node, precedence, to.node);
  merge_fact(from.cpus, precedence, to.cpus);
  merge_fact(from.pci_chain, precedence, to.pci_chain);
  merge_fact(from.pcie_generation, precedence, to.pcie_generation);
  merge_fact(from.pcie_width, precedence, to.pcie_width);
  merge_fact(from.max_pcie_generation, precedence, to.max_pcie_generation);
  merge_fact(from.max_pcie_width, precedence, to.max_pcie_width);
  merge_fact(from.pcie_bandwidth, precedence, to.pcie_bandwidth);
  merge_fact(from.nvlinks, precedence, to.nvlinks);
  merge_fact(from.compute_capability, precedence, to.compute_capability);
}

std::optional<std::size_t> counterpart(const Topology& file, const Topology::Gpu& gpu) {
  const auto find = [&](auto same) -> std::optional<std::size_t> {
    const auto found = std::find_if(file.gpus.begin(), file.gpus.end(), same);
    if (found == file.gpus.end()) return std::nullopt;
    return static_cast<std::size_t>(found - file.gpus.begin());
  };
  const auto by_uuid =
      find([&](const Topology::Gpu& other) { return !gpu.uuid.empty() && other.uuid == gpu.uuid; });
  if (by_uuid) return by_uuid;
  return find([&](const Topology::Gpu& other) {
    return !gpu.bus_id.empty() && other.bus_id == gpu.bus_id;
  });
}

// A file may know an interface by its place alone.
std::optional<std::size_t> counterpart(const Topology& file, const Topology::Nic& nic) {
  for (std::size_t i = 0; i < file.nics.size(); ++i) {
    const Topology::Nic& other = file.nics[i];
    const bool is_same = nic.bus_id.empty() || other.bus_id.empty()
                             ? !nic.name.empty() && nic.name == other.name
                             : nic.bus_id == other.bus_id;
    if (is_same) return i;
  }
  return std::nullopt;
}

// Numbers that no machine has: plans and system calls take the others as they are.
void check_numbers(const Topology& topology) {
  const auto check = [](std::string_view what, int value, int most) {
    if (value >= 0 && value <= most) return;
    throw InvalidArgument(fmt::format("{}: expected 0 to {}, but got {}", what, most, value));
  };
  check("number of GPUs", static_cast<int>(topology.gpus.size()), kMaxGpus);
  for (const Topology::NumaNode& node : topology.nodes) check("NUMA node", node.id, kMaxNode);
  for (const Topology::Gpu& gpu : topology.gpus) {
    for (const Topology::NvLinks& links :
         gpu.nvlinks.value.value_or(std::vector<Topology::NvLinks>{})) {
      check("NVLinks", links.count, kMaxLinks);
    }
  }
  for (const auto& row : topology.links) {
    for (const Topology::Link& link : row)
      check("NVLinks", link.nvlinks.value.value_or(0), kMaxLinks);
  }
}

// hwloc 2 takes these for granted in its own files, and crashes without them.
void check_sets(const XmlElement& element) {
  const std::string type = element.attribute("type");
  const bool is_io = type == "Bridge" || type == "PCIDev" || type == "OSDev" || type == "Misc";
  for (const char* const set : {"cpuset", "complete_cpuset", "nodeset", "complete_nodeset"}) {
    if (element.name != "object" || is_io || !element.attribute(set).empty()) continue;
    throw InvalidArgument(fmt::format("<object type=\"{}\">: expected an attribute {}", type, set));
  }
  for (const XmlElement& child : element.children) check_sets(child);
}

// A file of a later major version has another form, which this hwloc calls an invalid argument.
void check_version(const XmlElement& topology) {
  int version = 0;
  const std::string text = topology.attribute("version");
  std::from_chars(text.data(), text.data() + text.size(), version);
  if (hwloc_version() == 0 || version <= hwloc_version()) return;
  throw InvalidArgument(
      fmt::format("hwloc {0} wrote it, but this gantry has hwloc {1}; write it with "
                  "lstopo --export-xml-flags v{1}",
                  version, hwloc_version()));
}

Topology parse(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw InvalidArgument("it is empty");
  }
  if (!begins_as_xml(text)) {
    // JSON has no byte order mark, but editors write one.
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    return parse_topology_json(text);
  }
  const XmlElement document = parse_xml(text);
  if (document.name == "system") return parse_nccl_xml(text);
  if (document.name != "topology") {
    throw InvalidArgument(
        fmt::format("expected gantry's JSON, hwloc's <topology> or NCCL's <system>, but got <{}>",
                    document.name));
  }
  check_version(document);
  if (document.attribute("version").starts_with("2")) check_sets(document);
  const HwlocFacts facts = read_hwloc(plain_xml(text), true);
  if (!facts.problem.empty()) throw InvalidArgument(facts.problem);
  return topology_of(facts);
}

}  // namespace

Topology topology_of(const HwlocFacts& facts) {
  Topology topology;
  topology.nodes = facts.nodes;
  topology.cores = facts.cores;
  topology.nics = facts.nics;
  if (!facts.cpus.empty()) topology.allowed_cpus.offer(facts.cpus, FactSource::hwloc);
  for (const PciDevice& device : facts.devices) {
    if (!is_nvidia_gpu(device)) continue;
    Topology::Gpu gpu;
    gpu.name = device.name.empty() ? "NVIDIA GPU" : device.name;
    gpu.uuid = device.uuid;
    gpu.bus_id = device.bus_id;
    offer(device, FactSource::hwloc, gpu);
    topology.gpus.push_back(std::move(gpu));
  }
  std::sort(topology.gpus.begin(), topology.gpus.end(),
            [](const auto& a, const auto& b) { return a.bus_id < b.bus_id; });
  complete_localities(topology);
  derive_links(topology);
  mark_unknown_nvlinks(topology, FactSource::hwloc);
  if (topology.gpus.empty()) topology.why_no_gpu = "the topology file has no GPU";
  topology.gpu_source = FactSource::hwloc;
  return topology;
}

Topology read_topology_file(const std::string& path) {
  const auto fail = [&](std::string_view cause) {
    return InvalidArgument(fmt::format("topology file '{}': {}", path, cause));
  };
  // Before any of it is read.
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > kMaxBytes) throw fail("it is larger than 64 MiB");
  const FileContent file = read_regular_file(path, kMaxBytes);
  if (!file.ok()) throw fail(file.problem);
  try {
    Topology topology = parse(file.text);
    check_numbers(topology);
    make_printable(topology);
    return topology;
  } catch (const InvalidArgument& error) {
    throw fail(error.what());
  }
}

void merge(const Topology& file, Precedence precedence, bool by_position, Topology& topology) {
  const bool replaces = precedence == Precedence::file;
  if (!file.nodes.empty() && (replaces || topology.nodes.empty())) topology.nodes = file.nodes;
  if (!file.cores.empty() && (replaces || topology.cores.empty())) topology.cores = file.cores;
  if (!file.nics.empty() && (replaces || topology.nics.empty())) {
    topology.nics = file.nics;
    topology.nic_paths.clear();
  }
  if (replaces) merge_fact(file.cpu_quota, precedence, topology.cpu_quota);

  const std::size_t count = topology.gpus.size();
  std::vector<std::optional<std::size_t>> at(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (by_position) {
      if (i < file.gpus.size()) at[i] = i;
    } else {
      at[i] = counterpart(file, topology.gpus[i]);
    }
    if (at[i]) merge_gpu(file.gpus[*at[i]], precedence, topology.gpus[i]);
  }
  topology.links.resize(count);
  topology.nic_paths.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    topology.links[i].resize(count);
    topology.nic_paths[i].resize(topology.nics.size());
    if (!at[i]) continue;
    for (std::size_t j = 0; j < count; ++j) {
      if (!at[j]) continue;
      const Topology::Link& from = file.links[*at[i]][*at[j]];
      merge_fact(from.nvlinks, precedence, topology.links[i][j].nvlinks);
      merge_fact(from.may_have_nvlinks, precedence, topology.links[i][j].may_have_nvlinks);
      merge_fact(from.path, precedence, topology.links[i][j].path);
      merge_fact(from.peer_access, precedence, topology.links[i][j].peer_access);
    }
    const auto& from = file.nic_paths[*at[i]];
    for (std::size_t j = 0; j < topology.nics.size(); ++j) {
      const auto nic = counterpart(file, topology.nics[j]);
      if (nic) merge_fact(from[*nic], precedence, topology.nic_paths[i][j]);
    }
  }
}

void complete_localities(Topology& topology) {
  for (Topology::Gpu& gpu : topology.gpus) {
    for (const Topology::NumaNode& node : topology.nodes) {
      if (gpu.node && *gpu.node == node.id) gpu.cpus.offer(node.cpus, gpu.node.source);
    }
    if (!gpu.cpus) continue;
    for (const Topology::NumaNode& node : topology.nodes) {
      if (gpu.cpus->is_subset_of(node.cpus)) gpu.node.offer(node.id, gpu.cpus.source);
    }
  }
}

}  // namespace gantry::machine
