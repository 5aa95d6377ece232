#include "tests/machine/machine_file.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text << '\n';
}

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ";") + part;
  return text;
}

}  // namespace

MachineFile::MachineFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("no file " + path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    read(line);
  }
  describe_gpus();
}

MachineFile::~MachineFile() {
  for (const std::string& name : variables_) unsetenv(name.c_str());
}

void MachineFile::set(const std::string& name, const std::string& value) {
  setenv(name.c_str(), value.c_str(), 1);
  variables_.push_back(name);
}

void MachineFile::read(const std::string& line) {
  std::istringstream words(line);
  std::string kind;
  words >> kind;
  std::string bus_id;
  std::string chain;
  std::string name;
  int node = -1;
  int first = 0;
  int second = 0;
  int count = 0;
  if (kind == "processors") {
    std::getline(words >> std::ws, name);
    set("HWLOC_SYNTHETIC", name);
  } else if (kind == "gpu" && words >> bus_id >> node >> chain) {
    std::getline(words >> std::ws, name);
    add_device(bus_id, node, chain);
    gpus_.push_back({bus_id, name});
  } else if (kind == "instances" && words >> count && !gpus_.empty()) {
    gpus_.back().instances = count;
  } else if (kind == "nic" && words >> name >> bus_id >> node >> chain) {
    add_device(bus_id, node, chain);
    const fs::path entry = folder_ / ("sys/class/infiniband/" + name);
    fs::create_directories(entry);
    fs::create_directory_symlink(folder_ / ("sys/devices/" + chain + "/" + bus_id),
                                 entry / "device");
  } else if (kind == "switches" && words >> count) {
    for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
      for (int link = 0; link < count; ++link) {
        facts_.push_back(std::to_string(gpu) + " link" + std::to_string(link) + " 1 2");
      }
    }
  } else if (kind == "link" && words >> first >> second >> count) {
    // Numbers of links need only differ: a number for each pair and link.
    for (const auto& [gpu, peer] : {std::pair(first, second), std::pair(second, first)}) {
      static constexpr int kMostLinks = 18;
      int link = 0;
      const std::string prefix = std::to_string(gpu) + " link";
      for (const std::string& fact : facts_) link += fact.starts_with(prefix) ? 1 : 0;
      if (link + count > kMostLinks) throw std::runtime_error("too many links: " + line);
      for (int i = 0; i < count; ++i, ++link) {
        facts_.push_back(prefix + std::to_string(link) + " 1 0 0000" +
                         gpus_.at(static_cast<std::size_t>(peer)).bus_id);
      }
    }
  } else {
    throw std::runtime_error("malformed line: " + line);
  }
}

void MachineFile::add_device(const std::string& bus_id, int node, const std::string& chain) {
  const fs::path device = folder_ / ("sys/devices/" + chain + "/" + bus_id);
  write(device / "numa_node", std::to_string(node));
  write(device / "vendor", "0x10de");
  write(device / "class", "0x030200");
  const fs::path links = folder_ / "sys/bus/pci/devices";
  fs::create_directories(links);
  fs::create_directory_symlink(device, links / bus_id);
}

void MachineFile::describe_gpus() {
  std::vector<std::string> devices;
  int instance = 0;
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    const std::string number = std::to_string(i);
    const std::string tail = "0000000-0000-4000-8000-000000000000";
    const int first = instance;
    std::string text = gpus_[i].name + ",GPU-" +
                       std::to_string(gpus_[i].instances > 0 ? 9 : static_cast<int>(i) + first) +
                       tail + ",0000" + gpus_[i].bus_id;
    const std::string state = " memory 85899345920 85362474496 536870912";
    facts_.push_back(number + state);
    facts_.push_back(number + " processes");
    for (int k = 0; k < gpus_[i].instances; ++k, ++instance) {
      text += ",MIG-" + std::to_string(instance) + tail;
      facts_.push_back(number + "/" + std::to_string(k) + state);
      facts_.push_back(number + "/" + std::to_string(k) + " processes");
    }
    if (gpus_[i].instances > 0) --instance;  // the GPU itself is not listed
    devices.push_back(text);
    for (std::size_t j = 0; j < gpus_.size(); ++j) {
      if (i != j) facts_.push_back(number + "-" + std::to_string(j) + " p2p 0 0");
    }
  }
  set("FAKE_NVML", join(devices));
  set("FAKE_NVML_FACTS", join(facts_));
}

machine::Topology MachineFile::discover(const std::string& nvml) const {
  machine::TopologyOptions options;
  options.sysfs_root = (folder_ / "sys").string();
  options.nvml_path = nvml;
  return machine::discover_topology(options);
}

}  // namespace gantry::testing
