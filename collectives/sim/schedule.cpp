#include "collectives/sim/schedule.hpp"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "device/sim/streams/sim_launch.hpp"

namespace gantry::protocol::schedule {

namespace {

constexpr std::uint32_t kEagerPolls = 64;
constexpr std::uint32_t kYields = 2048;

std::atomic<Hook> hook{nullptr};
std::atomic<Hook> pause_hook{nullptr};

}  // namespace

void set_hook(Hook replacement) noexcept { hook.store(replacement, std::memory_order_release); }

void set_pause_hook(Hook replacement) noexcept {
  pause_hook.store(replacement, std::memory_order_release);
}

void point() {
  if (const Hook call = hook.load(std::memory_order_acquire)) call();
}

void pause(std::uint32_t spins) {
  if (const Hook call = pause_hook.load(std::memory_order_acquire)) call();
  if (gantry::sim::pause_task()) return;
  if (spins < kEagerPolls) return;
  if (spins < kYields) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace gantry::protocol::schedule
