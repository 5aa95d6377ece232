#include "device/topology/sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>
#include <utility>

#include <gantry/core/error.hpp>

#include "device/nvml/nvml.hpp"
#include "device/topology/pci_facts.hpp"
#include "device/topology/xml.hpp"

namespace gantry {
namespace {

constexpr FactSource kSource = FactSource::nccl_xml;

int number(const XmlElement& element, std::string_view key, int fallback) {
  const std::string text = element.attribute(key);
  if (text.empty()) return fallback;
  int value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc{} || read.ptr != text.data() + text.size()) {
    throw InvalidArgument(
        fmt::format("<{}>: expected a number for {}, but got '{}'", element.name, key, text));
  }
  return value;
}

// "0000ffff,00000003": 32 CPUs a group, the highest first.
CpuSet affinity_of(const XmlElement& cpu) {
  const std::string text = cpu.attribute("affinity");
  std::vector<int> cpus;
  int base = 0;
  for (std::size_t end = text.size(); !text.empty();) {
    const std::size_t comma = end == 0 ? std::string::npos : text.rfind(',', end - 1);
    const std::size_t begin = comma == std::string::npos ? 0 : comma + 1;
    unsigned long mask = 0;
    const auto read = std::from_chars(text.data() + begin, text.data() + end, mask, 16);
    if (read.ec != std::errc{} || read.ptr != text.data() + end || end - begin > 8) {
      throw InvalidArgument(
          fmt::format("<cpu>: expected an affinity such as 0000ffff, but got '{}'", text));
    }
    for (int bit = 0; bit < 32; ++bit) {
      if ((mask >> static_cast<unsigned>(bit) & 1U) != 0) cpus.push_back(base + bit);
    }
    if (comma == std::string::npos) break;
    base += 32;
    end = comma;
  }
  return CpuSet(std::move(cpus));
}

class Reader {
 public:
  Topology read(const XmlElement& root) {
    if (root.name != "system") {
      throw InvalidArgument(fmt::format("expected <system>, but got <{}>", root.name));
    }
    for (const XmlElement& cpu : root.children) {
      if (cpu.name == "cpu") read_cpu(cpu);
    }
    name_link_ends();
    derive_links(topology_);
    topology_.gpu_source = kSource;
    if (topology_.gpus.empty()) topology_.why_no_gpu = "the topology file has no GPU";
    return std::move(topology_);
  }

 private:
  void read_cpu(const XmlElement& cpu) {
    place_ = {};
    place_.cpus = affinity_of(cpu);
    const int node = number(cpu, "numaid", -1);
    if (node >= 0) place_.node = node;
    place_.chain = {fmt::format("cpu{}", cpu_count_++)};
    if (place_.node && !place_.cpus->empty()) {
      Topology::NumaNode entry;
      entry.id = node;
      entry.package = node;
      entry.cpus = *place_.cpus;
      topology_.nodes.push_back(std::move(entry));
    }
    read_children(cpu, "");
  }

  void read_children(const XmlElement& parent, const std::string& bus_id) {
    for (const XmlElement& child : parent.children) {
      if (child.name == "pci") read_pci(child);
      if (child.name == "gpu") read_gpu(child, parent, bus_id);
      if (child.name == "nic") read_nic(child, bus_id);
    }
  }

  void read_pci(const XmlElement& pci) {
    const std::string bus_id = short_bus_id(pci.attribute("busid"));
    if (bus_id.empty()) throw InvalidArgument("<pci>: expected an attribute busid");
    const bool is_bridge = std::any_of(pci.children.begin(), pci.children.end(),
                                       [](const XmlElement& child) { return child.name == "pci"; });
    if (is_bridge) place_.chain->push_back(bus_id);
    read_children(pci, bus_id);
    if (is_bridge) place_.chain->pop_back();
  }

  void read_gpu(const XmlElement& element, const XmlElement& pci, const std::string& bus_id) {
    Topology::Gpu gpu;
    gpu.bus_id = bus_id;
    const int sm = number(element, "sm", 0);
    gpu.name = sm == 0 ? "GPU" : fmt::format("GPU sm_{}", sm);
    if (sm > 0) gpu.compute_capability.offer(fmt::format("{}.{}", sm / 10, sm % 10), kSource);
    PciDevice device = place_;
    if (device.cpus->empty() || !device.node) device.cpus.reset();
    device.max_generation = gantry::pcie_generation(pci.attribute("link_speed"));
    if (const int width = number(pci, "link_width", 0); width > 0) device.max_width = width;
    offer(device, kSource, gpu);
    std::vector<Topology::NvLinks> links;
    for (const XmlElement& link : element.children) {
      if (link.name != "nvlink") continue;
      const std::string kind = link.attribute("tclass");
      Topology::NvLinks entry;
      if (kind.starts_with("0x03")) entry.end = Topology::LinkEnd::gpu;
      if (kind.starts_with("0x0680")) entry.end = Topology::LinkEnd::nvswitch;
      entry.bus_id = short_bus_id(link.attribute("target"));
      entry.count = number(link, "count", 1);
      links.push_back(std::move(entry));
    }
    gpu.nvlinks.offer(std::move(links), kSource);
    topology_.gpus.push_back(std::move(gpu));
  }

  void read_nic(const XmlElement& element, const std::string& bus_id) {
    for (const XmlElement& net : element.children) {
      if (net.name != "net") continue;
      Topology::Nic nic;
      nic.name = net.attribute("name");
      nic.bus_id = bus_id;
      PciDevice device = place_;
      // An interface beside the PCI tree has no place in it.
      if (bus_id.empty()) device.chain.reset();
      offer(device, kSource, nic);
      topology_.nics.push_back(std::move(nic));
    }
  }

  // A hidden switch has an address that no PCI device has.
  void name_link_ends() {
    for (Topology::Gpu& gpu : topology_.gpus) {
      for (Topology::NvLinks& links : *gpu.nvlinks.value) {
        if (links.bus_id.starts_with("fffffff")) links.bus_id.clear();
      }
    }
  }

  Topology topology_;
  PciDevice place_;
  int cpu_count_ = 0;
};

}  // namespace

Topology parse_nccl_xml(std::string_view text) { return Reader().read(parse_xml(text)); }

}  // namespace gantry
