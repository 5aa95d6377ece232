#include "memory/policy/reserve_bound.hpp"

#include <chrono>
#include <thread>

#include "streams/stream_clock.hpp"

namespace gantry::memory {
namespace {

// Work of a stream may wait for the caller's next action, so a device may never become idle.
constexpr auto kTimeout = std::chrono::milliseconds(2);
constexpr auto kLook = std::chrono::microseconds(50);

}  // namespace

bool await_idle(std::span<const int> devices) noexcept {
  try {
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    for (;;) {
      if (std::ranges::all_of(devices, is_device_idle)) return true;
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(kLook);
    }
  } catch (...) {
    return false;
  }
}

}  // namespace gantry::memory
