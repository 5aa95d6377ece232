#include "memory/ipc/stream_semaphores.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "core/background_thread.hpp"
#include "memory/ipc/peer_faults.hpp"

namespace gantry::memory {
namespace {

using Clock = std::chrono::steady_clock;

// The poll interval is this fraction of the time waited so far.
constexpr int kIntervalDivisor = 16;
constexpr Clock::duration kShortestInterval = std::chrono::microseconds(5);
constexpr Clock::duration kLongestInterval = std::chrono::milliseconds(1);
constexpr unsigned long kTimerSlackNs = 1000;

}  // namespace

struct StreamSemaphores::PendingWait {
  std::shared_ptr<IpcPeer> peer;  ///< keeps the event open
  NativeEvent event = nullptr;
  PeerFaults* faults = nullptr;
  HostSemaphore semaphore;
};

StreamSemaphores& StreamSemaphores::instance() {
  static auto& semaphores = *new StreamSemaphores();
  return semaphores;
}

void StreamSemaphores::wait(NativeStream stream, std::shared_ptr<IpcPeer> peer, NativeEvent event) {
  start_thread();
  // Every call that can fail comes before the stream's wait: nothing else would end that wait.
  PendingWaits waits(1);
  PendingWait& wait = waits.front();
  wait.peer = std::move(peer);
  wait.event = event;
  wait.faults = &PeerFaults::of(stream.device);
  wait.semaphore = semaphores_.acquire();
  try {
    driver().wait_for_word(stream, wait.semaphore.word, wait.semaphore.value);
  } catch (...) {
    semaphores_.recycle(wait.semaphore);
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    new_.splice(new_.end(), waits);
  }
  added_.notify_one();
}

void StreamSemaphores::start_thread() {
  const std::lock_guard lock(mutex_);
  if (has_thread_) return;
  start_background_thread("gantry-ipc-wait", [this] { run(); }).detach();
  has_thread_ = true;
}

void StreamSemaphores::run() {
  // By default the kernel lengthens every sleep by 50 us.
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
  PendingWaits pending;
  Clock::time_point changed;  // when a wait was last added or signalled
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const auto has_new = [this] { return !new_.empty(); };
      if (pending.empty()) {
        added_.wait(lock, has_new);
      } else {
        const Clock::duration waited = Clock::now() - changed;
        added_.wait_for(lock,
                        std::clamp(waited / kIntervalDivisor, kShortestInterval, kLongestInterval),
                        has_new);
      }
      if (has_new()) changed = Clock::now();
      pending.splice(pending.end(), new_);
    }
    const std::size_t before = pending.size();
    try {
      signal_completed(pending);
    } catch (const std::exception&) {
      // Out of host memory: the next round polls the remaining waits again.
    }
    if (pending.size() != before) changed = Clock::now();
  }
}

void StreamSemaphores::signal_completed(PendingWaits& pending) {
  // The ends of processes are read first: an event that is incomplete afterwards stays incomplete.
  std::set<const IpcPeer*> ended;
  for (const PendingWait& wait : pending) {
    if (!ended.contains(wait.peer.get()) && wait.peer->has_ended()) ended.insert(wait.peer.get());
  }
  const auto signal_if = [&](auto&& is_due) {
    for (auto next = pending.begin(); next != pending.end();) {
      const auto wait = next++;
      if (!is_due(*wait)) continue;
      signal(*wait);
      pending.erase(wait);
    }
  };
  signal_if([](const PendingWait& wait) { return driver().event_reached(wait.event); });
  // All faults are added before any semaphore is signalled: each process is reported once.
  const auto is_lost = [&](const PendingWait& wait) { return ended.contains(wait.peer.get()); };
  for (const PendingWait& wait : pending) {
    if (is_lost(wait)) wait.faults->add(wait.peer->process());
  }
  signal_if(is_lost);
}

void StreamSemaphores::signal(PendingWait& wait) noexcept {
  // The peer is released first: after the signal, this thread calls no driver on its behalf.
  wait.peer.reset();
  wait.semaphore.signal();
  semaphores_.recycle(wait.semaphore);
}

}  // namespace gantry::memory
