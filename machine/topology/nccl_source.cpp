#include "machine/topology/sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "machine/nvml/nvml.hpp"
#include "machine/topology/pci_facts.hpp"
#include "machine/topology/xml.hpp"

namespace gantry::machine {
namespace {

constexpr FactSource kSource = FactSource::nccl_xml;
constexpr std::size_t kMaxDigits = 65536 / 4;  // of a mask for as many CPUs as a CpuSet takes

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

// Vendor or class, "0x10de" or "10de"; none for what a file leaves out or fills with a placeholder.
std::optional<unsigned> hexadecimal(const XmlElement& element, std::string_view key) {
  const std::string text = element.attribute(key);
  std::string_view digits = text;
  if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
  unsigned value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (read.ec != std::errc{} || read.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// "0000ffff,00000003": 32 CPUs a group, the highest first. One group alone may be longer.
CpuSet affinity_of(const XmlElement& cpu) {
  const std::string text = cpu.attribute("affinity");
  const auto fail = [&] {
    return InvalidArgument(
        fmt::format("<cpu>: expected an affinity such as 0000ffff, but got '{}'", text));
  };
  std::vector<std::string_view> groups;
  for (std::string_view rest = text; !text.empty();) {
    const auto comma = rest.find(',');
    groups.push_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (groups.size() > kMaxDigits / 8) throw fail();
  std::vector<int> cpus;
  int base = 0;
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    std::string_view digits = *group;
    if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
    const std::size_t most = groups.size() > 1 ? 8 : kMaxDigits;
    if (digits.empty() || digits.size() > most) throw fail();
    for (std::size_t i = 0; i < digits.size(); ++i) {
      const char* const digit = digits.data() + digits.size() - 1 - i;
      unsigned bits = 0;
      const auto read = std::from_chars(digit, digit + 1, bits, 16);
      if (read.ec != std::errc{}) throw fail();
      for (int bit = 0; bit < 4; ++bit) {
        const int number = base + 4 * static_cast<int>(i) + bit;
        if ((bits >> static_cast<unsigned>(bit) & 1U) != 0) cpus.push_back(number);
      }
    }
    base += 32;
  }
  return CpuSet(std::move(cpus));
}

bool has_child(const XmlElement& element, std::string_view name) {
  return std::any_of(element.children.begin(), element.children.end(),
                     [&](const XmlElement& child) { return child.name == name; });
}

// Note [PCI classes in NCCL's files]
// The files that clouds give to virtual machines have neither <gpu> nor <nic>: NCCL adds them to
// each <pci> of the class of a GPU or a network interface. They name no vendor, or NVIDIA.
bool is_gpu(const XmlElement& pci) {
  const unsigned vendor = hexadecimal(pci, "vendor").value_or(0);
  const bool is_vendor_open = vendor == 0 || vendor == 0xffff;
  return hexadecimal(pci, "class").value_or(0) >> 16U == 0x03 &&
         (is_vendor_open || vendor == 0x10de);
}

bool is_nic(const XmlElement& pci) {
  const unsigned kind = hexadecimal(pci, "class").value_or(0) >> 8U;
  return kind == 0x0200 || kind == 0x0207;  // Ethernet, InfiniBand
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
    settle_links();
    const auto by_bus_id = [](const auto& a, const auto& b) { return a.bus_id < b.bus_id; };
    std::stable_sort(topology_.gpus.begin(), topology_.gpus.end(), by_bus_id);
    std::stable_sort(topology_.nics.begin(), topology_.nics.end(), by_bus_id);
    derive_links(topology_);
    mark_unknown_nvlinks(topology_, kSource);
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
    const bool is_bridge = has_child(pci, "pci");
    if (is_bridge) place_.chain->push_back(bus_id);
    read_children(pci, bus_id);
    if (is_bridge) place_.chain->pop_back();
    if (is_bridge) return;
    // See Note [PCI classes in NCCL's files].
    if (is_gpu(pci) && !has_child(pci, "gpu")) add_gpu("GPU", pci, bus_id);
    const bool is_named = std::any_of(
        pci.children.begin(), pci.children.end(),
        [](const XmlElement& child) { return child.name == "nic" && has_child(child, "net"); });
    if (is_nic(pci) && !is_named) add_nic("", bus_id);
  }

  Topology::Gpu& add_gpu(std::string model, const XmlElement& pci, const std::string& bus_id) {
    Topology::Gpu gpu;
    gpu.bus_id = bus_id;
    gpu.name = std::move(model);
    PciDevice device = place_;
    if (device.cpus->empty() || !device.node) device.cpus.reset();
    device.max_generation = machine::pcie_generation(pci.attribute("link_speed"));
    if (const int width = number(pci, "link_width", 0); width > 0) device.max_width = width;
    offer(device, kSource, gpu);
    topology_.gpus.push_back(std::move(gpu));
    return topology_.gpus.back();
  }

  void add_nic(std::string name, const std::string& bus_id) {
    Topology::Nic nic;
    nic.name = std::move(name);
    nic.bus_id = bus_id;
    // One without a PCI device hangs at the CPU itself.
    offer(place_, kSource, nic);
    topology_.nics.push_back(std::move(nic));
  }

  void read_gpu(const XmlElement& element, const XmlElement& pci, const std::string& bus_id) {
    const int sm = number(element, "sm", 0);
    Topology::Gpu& gpu = add_gpu(sm == 0 ? "GPU" : fmt::format("GPU sm_{}", sm), pci, bus_id);
    if (sm > 0) gpu.compute_capability.offer(fmt::format("{}.{}", sm / 10, sm % 10), kSource);
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
    has_links_ = has_links_ || !links.empty();
    gpu.nvlinks.offer(std::move(links), kSource);
  }

  void read_nic(const XmlElement& element, const std::string& bus_id) {
    for (const XmlElement& net : element.children) {
      if (net.name == "net") add_nic(net.attribute("name"), bus_id);
    }
  }

  // A hidden switch has an address that no PCI device has. A file that names no NVLink at all
  // leaves them to NCCL: then they are unknown, not absent.
  void settle_links() {
    for (Topology::Gpu& gpu : topology_.gpus) {
      if (!has_links_) gpu.nvlinks = {};
      if (!gpu.nvlinks) continue;
      for (Topology::NvLinks& links : *gpu.nvlinks.value) {
        if (links.bus_id.starts_with("fffffff")) links.bus_id.clear();
      }
    }
  }

  bool has_links_ = false;
  Topology topology_;
  PciDevice place_;
  int cpu_count_ = 0;
};

}  // namespace

Topology parse_nccl_xml(std::string_view text) { return Reader().read(parse_xml(text)); }

}  // namespace gantry::machine
