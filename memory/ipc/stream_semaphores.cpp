#include "memory/ipc/stream_semaphores.hpp"

#include <sys/prctl.h>

#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "core/background_thread.hpp"
#include "memory/ipc/peer_faults.hpp"
#include "memory/ipc/poll_backoff.hpp"

namespace gantry::memory {
namespace {

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
  PollBackoff backoff;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const auto has_new = [this] { return !new_.empty(); };
      if (pending.empty()) {
        added_.wait(lock, has_new);
      } else {
        added_.wait_for(lock, backoff.interval(), has_new);
      }
      if (has_new()) backoff.restart();
      pending.splice(pending.end(), new_);
    }
    const std::size_t before = pending.size();
    try {
      signal_completed(pending);
    } catch (const std::exception&) {
      // Out of host memory: the next round polls the remaining waits again.
    }
    if (pending.size() != before) backoff.restart();
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
