#include "machine/topology/sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <gantry/core/error.hpp>

#include "machine/nvml/nvml.hpp"

namespace gantry::machine {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int> number_of(const std::optional<std::string>& text, int base = 10) {
  if (!text) return std::nullopt;
  std::string_view digits = *text;
  if (base == 16 && digits.starts_with("0x")) digits.remove_prefix(2);
  int value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (read.ec != std::errc{}) return std::nullopt;
  return value;
}

std::optional<CpuSet> cpus_of(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  try {
    CpuSet cpus = CpuSet::parse(*text);
    if (!cpus.empty()) return cpus;
  } catch (const InvalidArgument&) {
    // What the kernel wrote is not what is known of it: that is no reason to stop.
  }
  return std::nullopt;
}

bool is_bus_id(std::string_view text) {
  return text.size() >= 12 && text[4] == ':' && text[7] == ':' && text[10] == '.';
}

// Numbers behind `prefix` in the names of a directory's entries.
std::vector<int> numbered(const std::string& directory, std::string_view prefix) {
  std::vector<int> numbers;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    int number = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + prefix.size(), end, number);
    if (read.ec == std::errc{} && read.ptr == end) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace

std::optional<PciDevice> SysfsSource::device(const std::string& bus_id) const {
  const std::string path = root_ + "/bus/pci/devices/" + bus_id;
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return std::nullopt;
  PciDevice device;
  device.bus_id = bus_id;
  device.vendor = static_cast<unsigned>(number_of(line_of(path + "/vendor"), 16).value_or(0));
  device.device_class =
      static_cast<unsigned>(number_of(line_of(path + "/class"), 16).value_or(0)) >> 8U;
  const auto node = number_of(line_of(path + "/numa_node"));
  // -1: firmware does not tell. The list of CPUs then holds all of them.
  if (node && *node >= 0) {
    device.node = node;
    device.cpus = cpus_of(line_of(path + "/local_cpulist"));
  }
  PciChain chain;
  for (const fs::path& part : real.parent_path()) {
    const std::string name = part.string();
    if (is_bus_id(name) || (name.starts_with("pci") && chain.empty() && name != "pci")) {
      chain.push_back(name);
    }
  }
  if (!chain.empty()) device.chain = std::move(chain);
  device.generation = pcie_generation(line_of(path + "/current_link_speed").value_or(""));
  device.max_generation = pcie_generation(line_of(path + "/max_link_speed").value_or(""));
  device.width = number_of(line_of(path + "/current_link_width"));
  device.max_width = number_of(line_of(path + "/max_link_width"));
  // Virtual machines write 0 for what they do not know; 255 is an unset register.
  for (auto* width : {&device.width, &device.max_width}) {
    if (*width && (**width <= 0 || **width == 255)) width->reset();
  }
  return device;
}

std::vector<Topology::Nic> SysfsSource::nics() const {
  std::vector<Topology::Nic> nics;
  // RDMA first: its name is the one that NCCL and UCX take.
  for (const char* kind : {"infiniband", "net"}) {
    std::error_code error;
    std::vector<fs::path> entries;
    for (const auto& entry : fs::directory_iterator(root_ + "/class/" + kind, error)) {
      entries.push_back(entry.path());
    }
    std::sort(entries.begin(), entries.end());
    for (const fs::path& entry : entries) {
      fs::path at = fs::canonical(entry / "device", error);
      // A virtio interface is a child of the PCI device.
      while (!error && !at.empty() && at != at.root_path() && !is_bus_id(at.filename().string())) {
        at = at.parent_path();
      }
      if (error || !is_bus_id(at.filename().string())) continue;
      Topology::Nic nic;
      nic.name = entry.filename().string();
      nic.bus_id = at.filename().string();
      const bool is_known = std::any_of(nics.begin(), nics.end(), [&](const Topology::Nic& other) {
        return other.bus_id == nic.bus_id;
      });
      if (is_known) continue;
      if (const auto found = device(nic.bus_id)) offer(*found, FactSource::sysfs, nic);
      nics.push_back(std::move(nic));
    }
  }
  return nics;
}

std::vector<Topology::NumaNode> SysfsSource::nodes() const {
  std::vector<Topology::NumaNode> nodes;
  const std::string directory = root_ + "/devices/system/node";
  for (const int id : numbered(directory, "node")) {
    const std::string path = fmt::format("{}/node{}", directory, id);
    Topology::NumaNode node;
    node.id = id;
    const auto cpus = cpus_of(line_of(path + "/cpulist"));
    if (!cpus) continue;
    node.cpus = *cpus;
    std::ifstream file(path + "/meminfo");
    std::string word;
    std::uint64_t kib = 0;
    while (file >> word) {
      if (word == "MemTotal:" && file >> kib) {
        node.memory_bytes.offer(kib * 1024, FactSource::sysfs);
        break;
      }
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<Topology::Core> SysfsSource::cores(const std::vector<Topology::NumaNode>& nodes) const {
  std::vector<Topology::Core> cores;
  const std::string directory = root_ + "/devices/system/cpu";
  for (const int cpu : numbered(directory, "cpu")) {
    const std::string path = fmt::format("{}/cpu{}/topology", directory, cpu);
    Topology::Core core;
    core.cpus = cpus_of(line_of(path + "/thread_siblings_list")).value_or(CpuSet{cpu});
    if (core.cpus.cpus().front() != cpu) continue;  // listed with its first thread
    core.package = number_of(line_of(path + "/physical_package_id")).value_or(0);
    for (const Topology::NumaNode& node : nodes) {
      if (core.node < 0 && core.cpus.is_subset_of(node.cpus)) core.node = node.id;
    }
    cores.push_back(std::move(core));
  }
  return cores;
}

std::optional<double> SysfsSource::cpu_quota(const std::string& own_group) const {
  std::optional<double> quota;
  const auto lower = [&](double limit, double period) {
    if (limit > 0 && period > 0) quota = std::min(quota.value_or(limit / period), limit / period);
  };
  const std::string root = root_ + "/fs/cgroup";
  // The tightest cpu.max from this group up to the root.
  for (std::string directory = root + own_group; directory.size() >= root.size();) {
    std::ifstream file(directory + "/cpu.max");
    std::string limit;
    double period = 0;
    if (file >> limit >> period && limit != "max")
      lower(std::strtod(limit.c_str(), nullptr), period);
    const std::size_t slash = directory.rfind('/');
    directory.resize(slash == std::string::npos ? 0 : slash);
  }
  // Version 1, as a container sees it.
  const auto limit = number_of(line_of(root + "/cpu/cpu.cfs_quota_us"));
  const auto period = number_of(line_of(root + "/cpu/cpu.cfs_period_us"));
  if (limit && period) lower(*limit, *period);
  return quota;
}

std::string own_control_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return line == "0::/" ? "" : line.substr(3);
  }
  return {};
}

}  // namespace gantry::machine
