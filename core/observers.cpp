#include "core/observers.hpp"

namespace gantry {

constinit std::atomic<std::uint8_t> observers{0};

void set_observer(Observer observer, bool on) noexcept {
  const auto bit = static_cast<std::uint8_t>(observer);
  if (on) {
    observers.fetch_or(bit, std::memory_order_relaxed);
  } else {
    observers.fetch_and(static_cast<std::uint8_t>(~bit), std::memory_order_relaxed);
  }
}

}  // namespace gantry
