#include "core/processes/process_watch.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace gantry {

ProcessWatch::ProcessWatch(const ProcessStamp& process)
    : process_(process), descriptor_(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0))) {
  if (descriptor_ < 0) return;
  // Only a look after the opening tells that the number did not go to another process before.
  const Liveness liveness = status_of(process).liveness;
  if (liveness == Liveness::running || liveness == Liveness::stopped) return;
  close(std::exchange(descriptor_, -1));
}

ProcessWatch::~ProcessWatch() {
  if (descriptor_ >= 0) close(descriptor_);
}

ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept
    : process_(other.process_), descriptor_(std::exchange(other.descriptor_, -1)) {}

ProcessWatch& ProcessWatch::operator=(ProcessWatch&& other) noexcept {
  std::swap(process_, other.process_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

bool ProcessWatch::has_ended() const noexcept {
  if (descriptor_ < 0) return gantry::has_ended(process_);
  pollfd watched{descriptor_, POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&watched, 1, 0);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return false;
  // The program may have closed descriptors that are not its own, and another file may have got
  // the number: an answer counts only if it comes from a pid descriptor.
  const bool is_ours =
      ready > 0 && (watched.revents & POLLIN) != 0 &&
      (syscall(SYS_pidfd_send_signal, descriptor_, 0, nullptr, 0) == 0 || errno != EBADF);
  return is_ours || gantry::has_ended(process_);
}

std::shared_ptr<const ProcessWatch> share_watch(const ProcessStamp& process) {
  using Key = std::pair<std::int32_t, std::uint64_t>;
  struct Known {
    std::mutex mutex;
    std::map<Key, std::weak_ptr<const ProcessWatch>> watches;
  };
  static auto* const known = new Known;  // never destroyed: groups may end after static objects
  const std::lock_guard lock(known->mutex);
  std::erase_if(known->watches, [](const auto& entry) { return entry.second.expired(); });
  auto& place = known->watches[{process.pid, process.start_time}];
  std::shared_ptr<const ProcessWatch> watch = place.lock();
  if (!watch) place = watch = std::make_shared<const ProcessWatch>(process);
  return watch;
}

}  // namespace gantry
