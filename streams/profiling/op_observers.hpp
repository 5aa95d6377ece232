// The one switch of all that watches tensor operations.
#pragma once

#include <atomic>

namespace gantry {

/// Observers of operations.
enum class OpObserver : unsigned {
  nvtx = 1,   ///< ranges for profilers; gantry::nvtx::annotate_ops
  trace = 2,  ///< gantry::trace
};

/// Which ones do, as bits. Set through set_op_observer().
inline constinit std::atomic<unsigned> op_observers{0};

/// True if one of them does. Costs one load: the way of every kernel asks it.
[[nodiscard]] inline bool ops_are_observed() noexcept {
  return op_observers.load(std::memory_order_relaxed) != 0;
}
[[nodiscard]] inline bool has_op_observer(OpObserver observer) noexcept {
  return (op_observers.load(std::memory_order_relaxed) & static_cast<unsigned>(observer)) != 0;
}
inline void set_op_observer(OpObserver observer, bool enabled) noexcept {
  const auto bit = static_cast<unsigned>(observer);
  if (enabled) {
    op_observers.fetch_or(bit, std::memory_order_relaxed);
  } else {
    op_observers.fetch_and(~bit, std::memory_order_relaxed);
  }
}

}  // namespace gantry
