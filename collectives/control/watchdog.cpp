#include "collectives/control/segment.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "core/assert.hpp"
#include "core/processes/background_thread.hpp"
#include "core/processes/process_watch.hpp"

namespace gantry {

namespace {

// Between two scans. A pidfd reports a death at once; a scan finds ranks that left or are late.
constexpr int kBusyMs = 20;
constexpr int kIdleMs = 200;
// Between two polls of a process without a pidfd. The kernel may have none, or the program may have
// closed it, as daemons do.
constexpr int kPollMs = 50;
// Between two scans without groups. It bounds the delay if the program closed the wake descriptor.
constexpr int kNoGroupMs = 1000;

using Peer = std::shared_ptr<const ProcessWatch>;

// Throws: Error.
int make_wake() {
  const int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor >= 0) return descriptor;
  throw Error(fmt::format("Communicator: failed to create an eventfd for the watchdog: {}",
                          std::strerror(errno)));
}

class WatchdogThread {
 public:
  WatchdogThread() : wake_(make_wake()), owner_(getpid()) {}

  // False in a forked child, which has no such thread.
  bool is_owner() const { return owner_ == getpid(); }

  void add(ControlSegment& group) {
    const std::lock_guard lock(mutex_);
    GANTRY_ASSERT(std::ranges::find(groups_, &group) == groups_.end(), "a group is watched twice");
    groups_.push_back(&group);
    if (!thread_.joinable() && !stopped_) {
      thread_ = start_background_thread("gantry-watchdog", [this] { run(); });
    }
    wake();
  }

  void remove(ControlSegment& group) {
    const std::lock_guard lock(mutex_);
    std::erase(groups_, &group);
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    wake();
    if (thread_.joinable()) thread_.join();
  }

 private:
  using Stamp = std::pair<std::int32_t, std::uint64_t>;

  static Stamp stamp_of(const ProcessWatch& peer) {
    return {peer.stamp().pid, peer.stamp().start_time};
  }

  bool is_polled(const ProcessWatch& peer) const {
    return peer.descriptor() < 0 || polled_.contains(stamp_of(peer));
  }

  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_, &one, sizeof one);
  }

  void run() {
    std::vector<Peer> watched;
    std::vector<pollfd> entries;
    for (;;) {
      int timeout_ms = kNoGroupMs;
      {
        const std::lock_guard lock(mutex_);
        if (stopped_) return;
        timeout_ms = scan(watched);
      }
      // poll() ignores negative descriptors.
      entries.assign(1, {wake_is_open_ ? wake_ : -1, POLLIN, 0});
      for (const Peer& peer : watched) {
        entries.push_back({is_polled(*peer) ? -1 : peer->descriptor(), POLLIN, 0});
      }
      if (!wake_is_open_) timeout_ms = std::min(timeout_ms, kPollMs);
      poll(entries.data(), entries.size(), timeout_ms);
      if ((entries[0].revents & POLLIN) != 0) {
        std::uint64_t count = 0;
        [[maybe_unused]] const auto got = read(wake_, &count, sizeof count);
      } else if (entries[0].revents != 0) {
        wake_is_open_ = false;
      }
      for (std::size_t i = 0; i < watched.size(); ++i) {
        const ProcessWatch& peer = *watched[i];
        if (!is_polled(peer) && entries[i + 1].revents == 0) continue;
        if (peer.has_ended()) {
          dead_.insert(stamp_of(peer));
        } else {
          polled_.insert(stamp_of(peer));  // the program closed the descriptor
        }
      }
    }
  }

  // Checks every group and lists the processes to watch. Returns the time until the next scan.
  int scan(std::vector<Peer>& watched) {
    watched.clear();
    int timeout_ms = groups_.empty() ? kNoGroupMs : kIdleMs;
    for (ControlSegment* group : groups_) {
      GANTRY_ASSERT(group->peers().size() == static_cast<std::size_t>(group->size()),
                    "a group is watched that is not whole");
      for (int rank = 0; rank < group->size(); ++rank) {
        const Peer& peer = group->peers()[static_cast<std::size_t>(rank)];
        if (!peer) continue;
        if (dead_.contains(stamp_of(*peer))) {
          group->mark_dead(rank);
        } else if (std::find(watched.begin(), watched.end(), peer) == watched.end()) {
          watched.push_back(peer);
          if (is_polled(*peer)) timeout_ms = std::min(timeout_ms, kPollMs);
        }
      }
    }
    for (ControlSegment* group : groups_) {
      if (group->watch()) timeout_ms = std::min(timeout_ms, kBusyMs);
    }
    return timeout_ms;
  }

  const int wake_;
  const pid_t owner_;
  std::mutex mutex_;  // guards groups_ and stopped_; held during a scan
  std::vector<ControlSegment*> groups_;
  bool stopped_ = false;
  // Used by the thread only.
  std::set<Stamp> dead_;
  std::set<Stamp> polled_;  // processes without a usable descriptor
  bool wake_is_open_ = true;
  std::thread thread_;
};

std::mutex instance_mutex;

// The watchdog of this process; null before the first group. Never destroyed: groups may outlive
// static objects, and a forked child has no thread to join.
WatchdogThread*& instance() {
  static WatchdogThread* thread = nullptr;
  return thread;
}

}  // namespace

void Watchdog::add(ControlSegment& group) {
  const std::lock_guard lock(instance_mutex);
  WatchdogThread*& thread = instance();
  if (thread == nullptr || !thread->is_owner()) {
    thread = new WatchdogThread;
    static const int registered = std::atexit([] {
      const std::lock_guard at_exit(instance_mutex);
      if (instance()->is_owner()) instance()->stop();
    });
    (void)registered;
  }
  thread->add(group);
}

void Watchdog::remove(ControlSegment& group) noexcept {
  const std::lock_guard lock(instance_mutex);
  if (instance() != nullptr && instance()->is_owner()) instance()->remove(group);
}

}  // namespace gantry
