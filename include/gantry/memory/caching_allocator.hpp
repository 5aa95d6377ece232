#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/memory/allocator.hpp>
#include <gantry/memory/buffer.hpp>

namespace gantry::memory {

/// The allocator of `device`: the caching allocator unless set_allocator replaced it.
[[nodiscard]] Allocator& allocator(Device device);
/// Makes `replacement` the allocator of `device` and returns the one before; nullptr restores the
/// caching allocator. Blocks return to the allocator that made them.
Allocator* set_allocator(Device device, Allocator* replacement);
/// Name of the backend that GANTRY_ALLOC_CONF=backend:… chose: "vmm", "native" or "async". With
/// "vmm", a device without virtual memory calls has its memory as with "native".
[[nodiscard]] std::string allocator_backend();

/// `bytes` of device memory for work on `stream`. Throws: OutOfMemoryError.
[[nodiscard]] Buffer allocate(std::size_t bytes, const Stream& stream);
/// As allocate, as a raw pointer that free() takes back.
[[nodiscard]] void* alloc(std::size_t bytes, const Stream& stream = Stream::current());
/// Takes back what alloc() gave; nullptr is fine. Throws: InvalidArgument for any other pointer.
void free(void* data);

/// Gives cached memory that nothing uses back to the driver, on every device.
void empty_cache();
/// Limits this process to `fraction` of the memory of `device`. Throws: InvalidArgument unless
/// 0 < fraction <= 1.
void set_fraction(double fraction, Device device = Device::cuda());
/// Calls `observer` with the report each time an OutOfMemoryError is about to be thrown.
void add_oom_observer(std::function<void(Device, const OomReport&)> observer);

}  // namespace gantry::memory
