#include "launcher/cgroup.hpp"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

namespace gantry::launcher {
namespace {

// Directory of this process's control group (version 2); empty if there is none.
std::string own_directory() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  }
  return {};
}

// The tightest cpu.max from this group up to the root, in CPUs.
std::optional<double> cpu_quota() {
  std::optional<double> quota;
  const std::string root = "/sys/fs/cgroup";
  for (std::string directory = own_directory(); directory.size() >= root.size();) {
    std::ifstream file(directory + "/cpu.max");
    std::string limit;
    double period = 0;
    if (file >> limit >> period && limit != "max" && period > 0) {
      const double cpus = std::stod(limit) / period;
      quota = quota ? std::min(*quota, cpus) : cpus;
    }
    const std::size_t slash = directory.rfind('/');
    directory.resize(slash == std::string::npos ? 0 : slash);
  }
  return quota;
}

}  // namespace

int allowed_cpus() {
  int cpus = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) cpus = CPU_COUNT(&mask);
  if (const auto quota = cpu_quota()) cpus = std::min(cpus, static_cast<int>(*quota));
  return std::max(1, cpus);
}

std::optional<std::int64_t> oom_kills() {
  std::ifstream file(own_directory() + "/memory.events");
  std::string key;
  for (std::int64_t value = 0; file >> key >> value;) {
    if (key == "oom_kill") return value;
  }
  return std::nullopt;
}

}  // namespace gantry::launcher
