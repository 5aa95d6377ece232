#include "memory/ipc_gates.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "memory/ipc_losses.hpp"
#include "memory/ipc_service.hpp"

namespace gantry::memory {
namespace {

constexpr std::chrono::microseconds kShortestPause{5};
constexpr std::chrono::microseconds kLongestPause{50};
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
  start_background_thread("gantry-ipc-gate", [this] { watch(); });
  has_watcher_ = true;
}

void IpcGates::watch() {
  // By default the kernel makes every sleep 50 us longer.
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
  Gates closed;
  for (auto pause = kShortestPause;; pause = std::min(2 * pause, kLongestPause)) {
    {
      std::unique_lock lock(mutex_);
      if (closed.empty()) added_.wait(lock, [this] { return !new_.empty(); });
      if (!new_.empty()) pause = kShortestPause;
      closed.splice(closed.end(), new_);
    }
    try {
      settle(closed);
    } catch (const std::exception&) {
      // Out of host memory; what is left is looked at again.
    }
    if (!closed.empty()) std::this_thread::sleep_for(pause);
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
