// Who is told of the program's operations.
#pragma once

#include <atomic>
#include <cstdint>

namespace gantry {

/// Observers of operations that a program may switch on, as bits.
enum class Observer : std::uint8_t {
  allocation_history = 1,  ///< memory::record_history
  sanitizer = 2,           ///< sanitizer::enable
  nvtx = 4,                ///< nvtx::annotate_ops
  trace = 8,               ///< gantry::trace
};

/// Several observers.
[[nodiscard]] constexpr Observer operator|(Observer one, Observer other) noexcept {
  return static_cast<Observer>(static_cast<std::uint8_t>(one) | static_cast<std::uint8_t>(other));
}

/// Observers of memory, and of operations on tensors.
inline constexpr Observer kMemoryObservers = Observer::allocation_history | Observer::sanitizer;
inline constexpr Observer kOpObservers = Observer::nvtx | Observer::trace;

/// The observers that are switched on, as bits; read through has_observer().
extern constinit std::atomic<std::uint8_t> observers;

/// True while one of `any` is on. Costs one load: hot paths call it before anything else here.
[[nodiscard]] inline bool has_observer(Observer any) noexcept {
  return (observers.load(std::memory_order_relaxed) & static_cast<std::uint8_t>(any)) != 0;
}
/// Switches an observer on or off.
void set_observer(Observer observer, bool on) noexcept;

}  // namespace gantry
