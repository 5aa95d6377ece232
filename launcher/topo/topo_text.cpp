#include "launcher/topo/topo_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "machine/topology/gpu_order.hpp"

namespace gantry::launcher {
namespace {

std::string number(std::string_view prefix, const machine::Fact<int>& fact) {
  return fact ? fmt::format("{}{}", prefix, *fact) : fmt::format("{}?", prefix);
}

}  // namespace

std::string connection_text(const machine::Topology::Link& link) {
  return machine::link_text(link);
}

std::string path_text(const machine::Fact<machine::PciPath>& path) {
  return path ? std::string(name(*path)) : std::string("?");
}

std::string gibibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1U << 30U));
}

std::string nic_text(const machine::Topology::Nic& nic) {
  return nic.name.empty() ? nic.bus_id : nic.name;
}

std::string pcie_text(const machine::Topology::Gpu& gpu) {
  std::string text =
      fmt::format("{} {}", number("gen ", gpu.pcie_generation), number("x", gpu.pcie_width));
  if (gpu.max_pcie_generation || gpu.max_pcie_width) {
    text += fmt::format(" of {} {}", number("gen ", gpu.max_pcie_generation),
                        number("x", gpu.max_pcie_width));
  }
  const bool is_told = gpu.pcie_generation || gpu.max_pcie_generation;
  if (!is_told && gpu.pcie_bandwidth) {
    text = fmt::format("{:.1f} GB/s", *gpu.pcie_bandwidth);
  }
  return text;
}

std::string use_text(const machine::Topology::Gpu& gpu) {
  std::string text = "memory ?";
  if (gpu.memory_bytes) {
    text = gpu.used_memory_bytes
               ? fmt::format("{:.1f} of {} used",
                             static_cast<double>(*gpu.used_memory_bytes) / (1U << 30U),
                             gibibytes(*gpu.memory_bytes))
               : gibibytes(*gpu.memory_bytes);
  }
  if (!gpu.processes) return text + ", processes ?";
  return text + fmt::format(", {} process{}", *gpu.processes, *gpu.processes == 1 ? "" : "es");
}

bool is_simulated(const machine::Topology& topology) {
  return topology.gpu_source == machine::FactSource::simulated;
}

std::string no_node_text(const machine::Topology& topology) {
  return is_simulated(topology) ? "simulated, near no NUMA node" : "NUMA node unknown";
}

std::string virtualization_text(const machine::Fact<std::string>& virtualization) {
  if (!virtualization) return "?";
  return *virtualization == "a hypervisor" ? "yes" : *virtualization;
}

std::vector<std::string> short_uuids(const machine::Topology& topology) {
  std::size_t length = 12;
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const std::string& one = topology.gpus[i].uuid;
      const std::string& other = topology.gpus[j].uuid;
      const auto differ = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
      if (one == other) continue;
      length = std::max(length, static_cast<std::size_t>(differ - one.begin()) + 1);
    }
  }
  std::vector<std::string> texts;
  for (const machine::Topology::Gpu& gpu : topology.gpus) {
    texts.push_back(gpu.uuid.empty() ? "?" : gpu.uuid.substr(0, length));
  }
  return texts;
}

}  // namespace gantry::launcher
