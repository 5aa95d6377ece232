#include "memory/ipc/gates.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "core/background_thread.hpp"
#include "memory/ipc/losses.hpp"
#include "memory/ipc/service.hpp"

namespace gantry::memory {
namespace {

using Clock = std::chrono::steady_clock;

// Between looks: a part of what the gates have been closed for, which they then are for longer.
constexpr int kPauseShare = 16;
constexpr Clock::duration kShortestPause = std::chrono::microseconds(5);
constexpr Clock::duration kLongestPause = std::chrono::milliseconds(1);
constexpr unsigned long kTimerSlackNs = 1000;

}  // namespace

struct IpcGates::Gate {
  std::shared_ptr<IpcPeer> peer;  ///< it keeps the event open
  NativeEvent event = nullptr;
  IpcLosses* losses = nullptr;
  GateWord word;
};

IpcGates& IpcGates::instance() {
  static auto& gates = *new IpcGates();
  return gates;
}

void IpcGates::hold(NativeStream stream, std::shared_ptr<IpcPeer> peer, NativeEvent event) {
  start_watcher();
  // All that can fail comes before the wait, which must not be left alone.
  Gates gates(1);
  Gate& gate = gates.front();
  gate.peer = std::move(peer);
  gate.event = event;
  gate.losses = &IpcLosses::of(stream.device);
  gate.word = words_.take();
  try {
    driver().wait_for_word(stream, gate.word.word, gate.word.value);
  } catch (...) {
    words_.put_back(gate.word);
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    new_.splice(new_.end(), gates);
  }
  added_.notify_one();
}

void IpcGates::start_watcher() {
  const std::lock_guard lock(mutex_);
  if (has_watcher_) return;
  start_background_thread("gantry-ipc-gate", [this] { watch(); }).detach();
  has_watcher_ = true;
}

void IpcGates::watch() {
  // By default the kernel makes every sleep 50 us longer.
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
  Gates closed;
  Clock::time_point changed;  // when a gate came or was opened
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const auto has_new = [this] { return !new_.empty(); };
      if (closed.empty()) {
        added_.wait(lock, has_new);
      } else {
        const Clock::duration waited = Clock::now() - changed;
        added_.wait_for(lock, std::clamp(waited / kPauseShare, kShortestPause, kLongestPause),
                        has_new);
      }
      if (has_new()) changed = Clock::now();
      closed.splice(closed.end(), new_);
    }
    const std::size_t before = closed.size();
    try {
      settle(closed);
    } catch (const std::exception&) {
      // Out of host memory; what is left is looked at again.
    }
    if (closed.size() != before) changed = Clock::now();
  }
}

void IpcGates::settle(Gates& closed) {
  // Who is gone is found out first: what is not reached after that never will be.
  std::set<const IpcPeer*> gone;
  for (const Gate& gate : closed) {
    if (!gone.contains(gate.peer.get()) && gate.peer->is_gone()) gone.insert(gate.peer.get());
  }
  const auto open_if = [&](auto&& may_open) {
    for (auto next = closed.begin(); next != closed.end();) {
      const auto gate = next++;
      if (!may_open(*gate)) continue;
      open(*gate);
      closed.erase(gate);
    }
  };
  open_if([](const Gate& gate) { return driver().event_reached(gate.event); });
  // All losses are told before any gate opens, so that a process that holds several is told once.
  const auto is_lost = [&](const Gate& gate) { return gone.contains(gate.peer.get()); };
  for (const Gate& gate : closed) {
    if (is_lost(gate)) gate.losses->add(gate.peer->process());
  }
  open_if(is_lost);
}

void IpcGates::open(Gate& gate) noexcept {
  // The peer first: once a gate is open nothing here calls the driver on its behalf.
  gate.peer.reset();
  gate.word.open();
  words_.put_back(gate.word);
}

}  // namespace gantry::memory
