// Who is told of the program's operations.
#pragma once

#include <atomic>
#include <cstdint>

namespace gantry {

/// Observers of operations that a program may switch on.
enum class Observer : std::uint8_t {
  allocation_history = 1,  ///< memory::record_history
  sanitizer = 2,           ///< sanitizer::enable
};

/// The observers that are switched on, as bits; read through has_observer().
extern constinit std::atomic<std::uint8_t> observers;

/// True while any observer is on. Costs one load: hot paths call it before anything else here.
[[nodiscard]] inline bool has_observers() noexcept {
  return observers.load(std::memory_order_relaxed) != 0;
}
[[nodiscard]] inline bool has_observer(Observer observer) noexcept {
  return (observers.load(std::memory_order_relaxed) & static_cast<std::uint8_t>(observer)) != 0;
}
/// Switches an observer on or off.
void set_observer(Observer observer, bool on) noexcept;

}  // namespace gantry
