#include "machine/topology/sources.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

namespace gantry::machine {
namespace {

constexpr FactSource kSource = FactSource::system;

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string virtualization() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    if (line.find(" hypervisor") == std::string::npos) return "none";
    const std::string vendor = first_line("/sys/class/dmi/id/sys_vendor");
    return vendor.empty() ? "a hypervisor" : vendor;
  }
  return {};
}

std::string container() {
  if (access("/.dockerenv", F_OK) == 0) return "docker";
  if (access("/run/.containerenv", F_OK) == 0) return "podman";
  const std::string group = first_line("/proc/1/cgroup");
  if (group.find("kubepods") != std::string::npos) return "kubernetes";
  if (access("/singularity", F_OK) == 0) return "singularity";
  return "none";
}

}  // namespace

void read_system(Topology& topology) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) topology.host = host.data();
  if (std::string text = virtualization(); !text.empty()) {
    topology.virtualization.offer(std::move(text), kSource);
  }
  topology.container.offer(container(), kSource);
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) == 0) {
    topology.shm_bytes.offer(std::uint64_t{status.f_bavail} * status.f_frsize, kSource);
  }
}

}  // namespace gantry::machine
