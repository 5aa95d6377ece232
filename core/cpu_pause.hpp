// The processor's instruction for loops that wait.
#pragma once

namespace gantry {

/// Waits some tens of cycles, in which the core's other hardware thread computes.
inline void cpu_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // `yield` does not wait
#endif
}

}  // namespace gantry
