#include "collectives/peers/process.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

namespace gantry {

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
  int ended = 0;
  do {
    ended = poll(&watched, 1, 0);
  } while (ended < 0 && errno == EINTR);
  return ended <= 0;  // what cannot be asked is no death
}

std::shared_ptr<const PeerProcess> share_peer(const ProcessStamp& process) {
  using Key = std::pair<std::int32_t, std::uint64_t>;
  struct Known {
    std::mutex mutex;
    std::map<Key, std::weak_ptr<const PeerProcess>> peers;
  };
  static auto* const known = new Known;  // never destroyed: groups may end after static objects
  const std::lock_guard lock(known->mutex);
  std::erase_if(known->peers, [](const auto& entry) { return entry.second.expired(); });
  auto& place = known->peers[{process.pid, process.start_time}];
  std::shared_ptr<const PeerProcess> peer = place.lock();
  if (!peer) place = peer = std::make_shared<const PeerProcess>(process);
  return peer;
}

}  // namespace gantry
