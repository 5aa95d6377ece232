#include "collectives/peer_process.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <utility>

namespace gantry {

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

PeerProcess::PeerProcess(const ProcessStamp& process)
    : process_(process), descriptor_(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0))) {
  // The pid may have been reused before it was opened.
  if (descriptor_ >= 0 && !is_running(process)) {
    close(descriptor_);
    descriptor_ = -1;
  }
}

PeerProcess::~PeerProcess() {
  if (descriptor_ >= 0) close(descriptor_);
}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept
    : process_(other.process_), descriptor_(std::exchange(other.descriptor_, -1)) {}

PeerProcess& PeerProcess::operator=(PeerProcess&& other) noexcept {
  std::swap(process_, other.process_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

bool PeerProcess::alive() const noexcept {
  if (descriptor_ < 0) return is_running(process_);
  pollfd watched{descriptor_, POLLIN, 0};
  return poll(&watched, 1, 0) == 0;
}

}  // namespace gantry
