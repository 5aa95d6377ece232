// Kernels on CPU tensors without the detour of a submission.
#pragma once

#include "core/observers.hpp"
#include "kernels/target.hpp"

namespace gantry::kernels {

// True if submit() would do nothing but call `host`: on the CPU, while nothing watches. The caller
// then calls it with references to operands, where submit() copies them.
[[nodiscard]] inline bool is_direct_call(const Target& target) noexcept {
  return target.is_cpu() && !has_observer(kOpObservers | Observer::sanitizer);
}

}  // namespace gantry::kernels
