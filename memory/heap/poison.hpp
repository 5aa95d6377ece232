// AddressSanitizer on simulated device memory: freed blocks may not be touched.
#pragma once

#include <sanitizer/asan_interface.h>

#include <cstddef>

#include <gantry/extend/driver.hpp>

namespace gantry::memory {

// Note [Poison in stream order]
// A freed block may still be used by work that its stream has queued, and so may a block that is
// handed out again be waiting behind such work. The allocator acts at submission, ahead of the
// work; so poisoning is itself submitted to the block's stream: what was queued before the free
// runs unharmed, what was queued after it is reported. Builds without AddressSanitizer and real
// GPUs submit nothing.

/// True if this build and platform watch device memory.
[[nodiscard]] inline bool poisons_device_memory() {
#ifdef __SANITIZE_ADDRESS__
  return platform() == Platform::simulated;
#else
  return false;
#endif
}

/// Marks host-visible memory as not to be touched, at once. Nothing without AddressSanitizer.
inline void poison_now(void* data, std::size_t bytes) { ASAN_POISON_MEMORY_REGION(data, bytes); }

/// Takes poison_now back.
inline void unpoison_now(void* data, std::size_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(data, bytes);
}

/// Calls `act(data, bytes)` in the order of `stream`.
void act_in_order(void (*act)(void*, std::size_t), void* data, std::size_t bytes,
                  NativeStream stream) noexcept;

/// Forbids `bytes` of device memory to work submitted to `stream` from now on.
inline void poison(void* data, std::size_t bytes, NativeStream stream) {
  if (poisons_device_memory()) act_in_order(poison_now, data, bytes, stream);
}

/// Allows `bytes` of device memory to work submitted to `stream` from now on.
inline void unpoison(void* data, std::size_t bytes, NativeStream stream) {
  if (poisons_device_memory()) act_in_order(unpoison_now, data, bytes, stream);
}

}  // namespace gantry::memory
