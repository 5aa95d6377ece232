#include "collectives/control/watchdog.hpp"

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

#include "collectives/control/block.hpp"
#include "collectives/peers/process.hpp"
#include "core/background_thread.hpp"

namespace gantry {

namespace {

// Between two looks. Deaths come at once, by their descriptors; a look finds who left or is late.
constexpr int kBusyMs = 20;
constexpr int kIdleMs = 200;
// A process without a descriptor is asked for this often: the kernel gives none, or the program has
// closed it, as daemons do.
constexpr int kAskMs = 50;
// Without groups; a program that has closed the descriptor which wakes the thread must not wait for
// longer.
constexpr int kRestMs = 1000;

using Peer = std::shared_ptr<const PeerProcess>;

// Throws: Error.
int make_wake() {
  const int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor >= 0) return descriptor;
  throw Error(fmt::format("watching over ranks: no eventfd: {}", std::strerror(errno)));
}

class Thread {
 public:
  Thread() : wake_(make_wake()), owner_(getpid()) {}

  // In a child of a fork nothing runs that this object knows of.
  bool is_mine() const { return owner_ == getpid(); }

  void add(ControlBlock& group) {
    const std::lock_guard lock(mutex_);
    groups_.push_back(&group);
    if (!thread_.joinable() && !stopped_) {
      thread_ = start_background_thread("gantry-watchdog", [this] { run(); });
    }
    wake();
  }

  void remove(ControlBlock& group) {
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

  static Stamp stamp_of(const PeerProcess& peer) {
    return {peer.stamp().pid, peer.stamp().start_time};
  }

  bool is_asked(const PeerProcess& peer) const {
    return peer.descriptor() < 0 || asked_.contains(stamp_of(peer));
  }

  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_, &one, sizeof one);
  }

  void run() {
    std::vector<Peer> watched;
    std::vector<pollfd> entries;
    for (;;) {
      int timeout_ms = kRestMs;
      {
        const std::lock_guard lock(mutex_);
        if (stopped_) return;
        timeout_ms = look(watched);
      }
      // Negative descriptors are passed over.
      entries.assign(1, {wake_is_open_ ? wake_ : -1, POLLIN, 0});
      for (const Peer& peer : watched) {
        entries.push_back({is_asked(*peer) ? -1 : peer->descriptor(), POLLIN, 0});
      }
      if (!wake_is_open_) timeout_ms = std::min(timeout_ms, kAskMs);
      poll(entries.data(), entries.size(), timeout_ms);
      if ((entries[0].revents & POLLIN) != 0) {
        std::uint64_t count = 0;
        [[maybe_unused]] const auto got = read(wake_, &count, sizeof count);
      } else if (entries[0].revents != 0) {
        wake_is_open_ = false;
      }
      for (std::size_t i = 0; i < watched.size(); ++i) {
        const PeerProcess& peer = *watched[i];
        if (!is_asked(peer) && entries[i + 1].revents == 0) continue;
        if (!peer.alive()) {
          dead_.insert(stamp_of(peer));
        } else {
          asked_.insert(stamp_of(peer));  // the descriptor is this process's no more
        }
      }
    }
  }

  // Looks after every group, lists the processes to watch, and says for how long.
  int look(std::vector<Peer>& watched) {
    watched.clear();
    int timeout_ms = groups_.empty() ? kRestMs : kIdleMs;
    for (ControlBlock* group : groups_) {
      for (int rank = 0; rank < group->size(); ++rank) {
        const Peer& peer = group->peers()[static_cast<std::size_t>(rank)];
        if (!peer) continue;
        if (dead_.contains(stamp_of(*peer))) {
          group->note_death(rank);
        } else if (std::find(watched.begin(), watched.end(), peer) == watched.end()) {
          watched.push_back(peer);
          if (is_asked(*peer)) timeout_ms = std::min(timeout_ms, kAskMs);
        }
      }
    }
    for (ControlBlock* group : groups_) {
      if (group->watch()) timeout_ms = std::min(timeout_ms, kBusyMs);
    }
    return timeout_ms;
  }

  const int wake_;
  const pid_t owner_;
  std::mutex mutex_;  // guards groups_ and stopped_, and is held during a look
  std::vector<ControlBlock*> groups_;
  bool stopped_ = false;
  // The thread's own.
  std::set<Stamp> dead_;
  std::set<Stamp> asked_;  // processes whose descriptors say nothing
  bool wake_is_open_ = true;
  std::thread thread_;
};

std::mutex instance_mutex;

// This process's thread; null before the first group. Never destroyed: groups may outlive static
// objects, and a forked child cannot end a thread that it does not have.
Thread*& instance() {
  static Thread* thread = nullptr;
  return thread;
}

}  // namespace

void Watchdog::add(ControlBlock& group) {
  const std::lock_guard lock(instance_mutex);
  Thread*& thread = instance();
  if (thread == nullptr || !thread->is_mine()) {
    thread = new Thread;
    static const int registered = std::atexit([] {
      const std::lock_guard at_exit(instance_mutex);
      if (instance()->is_mine()) instance()->stop();
    });
    (void)registered;
  }
  thread->add(group);
}

void Watchdog::remove(ControlBlock& group) noexcept {
  const std::lock_guard lock(instance_mutex);
  if (instance() != nullptr && instance()->is_mine()) instance()->remove(group);
}

}  // namespace gantry
