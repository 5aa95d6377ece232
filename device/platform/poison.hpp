// AddressSanitizer on simulated device memory: freed blocks may not be touched.
#pragma once

#include <sanitizer/asan_interface.h>

#include <cstddef>

#include <gantry/extend/driver.hpp>

#include "core/address_sanitizer.hpp"

namespace gantry {

// Note [Poison in stream order]
// A free takes effect at once for the host, but in stream order for the device: kernels that were
// queued before the free may still run, and may use the block. So the allocator does not poison the
// block at the free. It queues a host function on the block's stream that poisons it. Kernels
// queued before the free run first and are not reported; kernels queued after it are. An
// allocation queues a host function that unpoisons the block, for the same reason. Builds without
// AddressSanitizer and real GPUs queue nothing.

/// True if this build and platform poison device memory.
[[nodiscard]] inline bool poisons_device_memory() {
  return kHasAddressSanitizer && platform() == Platform::simulated;
}

/// Poisons host-visible memory at once. Does nothing without AddressSanitizer.
inline void poison_now(void* data, std::size_t bytes) { ASAN_POISON_MEMORY_REGION(data, bytes); }

/// Reverts poison_now().
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

}  // namespace gantry
