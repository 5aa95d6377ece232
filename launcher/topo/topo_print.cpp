#include "launcher/topo/topo_print.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "launcher/topo/topo_text.hpp"

namespace gantry::launcher {
namespace {

constexpr const char* kLegend =
    "X: the GPU itself  NV#: that many NVLinks  PIX: one PCIe switch  PXB: several PCIe switches\n"
    "PHB: a host bridge  NODE: within a NUMA node  SYS: between NUMA nodes  ?: unknown\n"
    "- behind a name: no peer access\n";

template <class T>
std::string known(const machine::Fact<T>& fact) {
  return fact ? fmt::format("{}", *fact) : "?";
}

std::string counted(std::size_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

// True if a source, such as a topology file, places or connects a simulated device.
bool is_placed(const machine::Topology& topology) {
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    if (topology.gpus[i].node || topology.gpus[i].cpus) return true;
    for (std::size_t j = 0; j < topology.gpus.size(); ++j) {
      const machine::Topology::Link& link = topology.links[i][j];
      if (i != j && (link.nvlinks || link.path || link.peer_access)) return true;
    }
  }
  return false;
}

std::string header(const machine::Topology& topology) {
  // Simulated devices have no driver.
  const bool has_driver = !is_simulated(topology) || topology.driver_version;
  std::string text =
      fmt::format("{}: {}virtual machine {}, container {}\n", topology.host,
                  has_driver ? fmt::format("driver {}, ", known(topology.driver_version)) : "",
                  virtualization_text(topology.virtualization), known(topology.container));
  text += fmt::format("CPUs {} may be used; {} in {}; quota {}; /dev/shm {}\n",
                      topology.allowed_cpus ? topology.allowed_cpus->str() : "?",
                      counted(topology.cores.size(), "core"),
                      counted(topology.nodes.size(), "NUMA node"),
                      topology.cpu_quota ? fmt::format("{:.3g} CPUs", *topology.cpu_quota) : "none",
                      topology.shm_bytes ? gibibytes(*topology.shm_bytes) + " free" : "?");
  for (const machine::Topology::NumaNode& node : topology.nodes) {
    text += fmt::format("NUMA node {}: package {}, CPUs {}, {}\n", node.id, node.package,
                        node.cpus.str(),
                        node.memory_bytes ? gibibytes(*node.memory_bytes) : "memory ?");
  }
  return text;
}

// Columns as wide as their widest cell.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string warnings_of(const machine::Topology& topology) {
  std::string text;
  for (const std::string& warning : topology.warnings) text += "warning: " + warning + '\n';
  return text;
}

// One node of the printed tree.
struct Branch {
  std::string text;
  std::vector<Branch> branches;

  Branch& child(const std::string& name) {
    const auto found = std::find_if(branches.begin(), branches.end(),
                                    [&](const Branch& one) { return one.text == name; });
    if (found != branches.end()) return *found;
    branches.push_back({name, {}});
    return branches.back();
  }
};

void print(const Branch& branch, const std::string& indent, std::string& text) {
  for (std::size_t i = 0; i < branch.branches.size(); ++i) {
    const bool is_last = i + 1 == branch.branches.size();
    text += indent + (is_last ? "└─ " : "├─ ") + branch.branches[i].text + '\n';
    print(branch.branches[i], indent + (is_last ? "   " : "│  "), text);
  }
}

std::string node_text(const machine::Topology& topology, const machine::Topology::NumaNode& node) {
  const auto cores =
      std::count_if(topology.cores.begin(), topology.cores.end(),
                    [&](const machine::Topology::Core& core) { return core.node == node.id; });
  return fmt::format("NUMA node {}: CPUs {}, {} cores, {}", node.id, node.cpus.str(), cores,
                     node.memory_bytes ? gibibytes(*node.memory_bytes) : "memory ?");
}

// Where a device hangs: its NUMA node, then the bridges.
Branch& place_of(Branch& root, const machine::Topology& topology, const machine::Fact<int>& node,
                 const machine::Fact<std::vector<std::string>>& chain) {
  Branch* at = nullptr;
  for (const machine::Topology::NumaNode& one : topology.nodes) {
    if (!node || one.id != *node) continue;
    at = &root.child(fmt::format("package {}", one.package)).child(node_text(topology, one));
  }
  if (at == nullptr) at = &root.child(no_node_text(topology));
  for (const std::string& bridge : chain.value.value_or(std::vector<std::string>{})) {
    at = &at->child(bridge);
  }
  return *at;
}

}  // namespace

std::string topology_matrix(const machine::Topology& topology) {
  std::string text = header(topology);
  if (topology.gpus.empty()) {
    return text + fmt::format("no GPU: {}\n", topology.why_no_gpu) + warnings_of(topology);
  }
  const std::vector<std::string> uuids = short_uuids(topology);
  if (is_simulated(topology) && !is_placed(topology)) {
    std::vector<std::vector<std::string>> devices;
    for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
      devices.push_back(
          {fmt::format("GPU{}", i), topology.gpus[i].name, uuids[i], topology.gpus[i].bus_id});
    }
    return text +
           fmt::format("\n{}, in host memory: no links, near no CPUs\n",
                       counted(topology.gpus.size(), "simulated device")) +
           table(devices) + warnings_of(topology);
  }
  std::vector<std::vector<std::string>> rows(1, {""});
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) rows[0].push_back(fmt::format("GPU{}", i));
  for (const machine::Topology::Nic& nic : topology.nics) rows[0].push_back(nic_text(nic));
  rows[0].insert(rows[0].end(), {"NUMA", "by", "CPUs"});
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    const machine::Topology::Gpu& gpu = topology.gpus[i];
    std::vector<std::string> row{fmt::format("GPU{}", i)};
    for (std::size_t j = 0; j < topology.gpus.size(); ++j) {
      const machine::Topology::Link& link = topology.links[i][j];
      row.push_back(i == j ? "X" : connection_text(link));
      if (i != j && link.peer_access && !*link.peer_access) row.back() += '-';
    }
    for (const machine::Fact<machine::PciPath>& path : topology.nic_paths[i])
      row.push_back(path_text(path));
    row.push_back(known(gpu.node));
    row.emplace_back(name(gpu.node.source));
    row.push_back(gpu.cpus ? gpu.cpus->str() : "?");
    rows.push_back(std::move(row));
  }
  text += '\n' + table(rows) + '\n';
  std::vector<std::vector<std::string>> gpus;
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    const machine::Topology::Gpu& gpu = topology.gpus[i];
    gpus.push_back({fmt::format("GPU{}", i), gpu.name, uuids[i], gpu.bus_id,
                    "PCIe " + pcie_text(gpu), use_text(gpu)});
    if (gpu.inactive_nvlinks && *gpu.inactive_nvlinks > 0) {
      gpus.back().push_back(fmt::format("{} NVLinks inactive", *gpu.inactive_nvlinks));
    }
  }
  return text + table(gpus) + '\n' + kLegend + warnings_of(topology);
}

std::string topology_tree(const machine::Topology& topology) {
  Branch root{topology.host, {}};
  const std::vector<std::string> uuids = short_uuids(topology);
  for (const machine::Topology::NumaNode& node : topology.nodes) {
    root.child(fmt::format("package {}", node.package)).child(node_text(topology, node));
  }
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    const machine::Topology::Gpu& gpu = topology.gpus[i];
    place_of(root, topology, gpu.node, gpu.pci_chain)
        .branches.push_back({fmt::format("GPU{} {} {} {}", i, gpu.name, gpu.bus_id, uuids[i]), {}});
  }
  for (const machine::Topology::Nic& nic : topology.nics) {
    place_of(root, topology, nic.node, nic.pci_chain)
        .branches.push_back({nic.name.empty() ? "network interface " + nic.bus_id
                                              : fmt::format("{} {}", nic.name, nic.bus_id),
                             {}});
  }
  std::string text = root.text + '\n';
  print(root, "", text);
  if (topology.gpus.empty()) text += fmt::format("no GPU: {}\n", topology.why_no_gpu);
  return text + warnings_of(topology);
}

std::string describe_topology(const machine::Topology& topology, const TopoRequest& request) {
  switch (request.form) {
    case TopoForm::matrix:
      return topology_matrix(topology);
    case TopoForm::tree:
      return topology_tree(topology);
    case TopoForm::json:
      return machine::topology_json(topology, request.redact);
    case TopoForm::svg:
      return topology_picture(topology);
  }
  return {};
}

}  // namespace gantry::launcher
