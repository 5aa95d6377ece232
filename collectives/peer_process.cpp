#include "collectives/peer_process.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>

namespace gantry {

std::uint64_t process_start_time(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  // The second field is the program's name in parentheses and may hold anything.
  const auto end_of_name = line.rfind(')');
  if (end_of_name == std::string::npos) return 0;
  std::istringstream rest(line.substr(end_of_name + 1));
  std::string field;
  for (int i = 3; i <= 22 && rest >> field; ++i) {
    if (i == 3 && (field == "Z" || field == "X")) return 0;
    if (i == 22) return std::stoull(field);
  }
  return 0;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

PeerProcess::PeerProcess(int pid, std::uint64_t start_time)
    : pid_(pid),
      start_time_(start_time),
      descriptor_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
  // The pid may have been reused before it was opened.
  if (descriptor_ >= 0 && process_start_time(pid) != start_time) {
    close(descriptor_);
    descriptor_ = -1;
  }
}

PeerProcess::~PeerProcess() {
  if (descriptor_ >= 0) close(descriptor_);
}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept
    : pid_(other.pid_),
      start_time_(other.start_time_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

PeerProcess& PeerProcess::operator=(PeerProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(start_time_, other.start_time_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

bool PeerProcess::alive() const noexcept {
  if (descriptor_ < 0) return process_start_time(pid_) == start_time_ && start_time_ != 0;
  pollfd watched{descriptor_, POLLIN, 0};
  return poll(&watched, 1, 0) == 0;
}

}  // namespace gantry
