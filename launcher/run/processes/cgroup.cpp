#include "launcher/run/processes/cgroup.hpp"

#include <fstream>
#include <string>

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

}  // namespace

std::optional<std::int64_t> oom_kills() {
  std::ifstream file(own_directory() + "/memory.events");
  std::string key;
  for (std::int64_t value = 0; file >> key >> value;) {
    if (key == "oom_kill") return value;
  }
  return std::nullopt;
}

}  // namespace gantry::launcher
