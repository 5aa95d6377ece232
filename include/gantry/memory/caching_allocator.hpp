#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/core/export.hpp>
#include <gantry/memory/allocator.hpp>
#include <gantry/memory/buffer.hpp>

namespace gantry::memory {

/// The allocator of `device`: the built-in one, or that of set_allocator(). A reference to the
/// latter is valid until it is replaced. Thread safety: any thread.
/// @since 0.1
[[nodiscard]] GANTRY_API Allocator& allocator(Device device);
/// Makes `replacement` the allocator of `device`; nullptr restores the built-in allocator. Returns
/// the previous replacement; nullptr if that was the built-in allocator.
///
/// Each block is freed by the allocator that made it. Buffers of allocate(), pointers of
/// allocate_raw() and tensors keep a replaced allocator alive until they are freed. Blocks that the
/// program gets by calling the allocator's own member allocate() do not.
/// Thread safety: any thread.
/// @since 0.1
GANTRY_API std::shared_ptr<Allocator> set_allocator(Device device,
                                                    std::shared_ptr<Allocator> replacement);
/// Name of the backend that GANTRY_ALLOC_CONF=backend:… selects: "vmm", "native" or "async". With
/// "vmm", a device without support for virtual memory is served as by "native".
/// @since 0.1
[[nodiscard]] GANTRY_API std::string allocator_backend();

/// Allocates `bytes` of device memory for work on `stream`, at an address that is a multiple of
/// `alignment`. 0 bytes give an empty buffer.
/// Device/stream: memory of the stream's device; the host blocks only for out-of-memory recovery.
/// Thread safety: any thread.
/// Throws: OutOfMemoryError; InvalidArgument unless `alignment` is a power of two.
/// Example: `const memory::Buffer buffer = memory::allocate(Stream::current("cuda:0"), 4096);`
/// @since 0.1
[[nodiscard]] GANTRY_API Buffer allocate(const Stream& stream, std::size_t bytes,
                                         std::size_t alignment = kDefaultAlignment);
/// As allocate(), as a raw pointer for deallocate_raw(). 0 bytes give nullptr.
/// @code
/// void* data = memory::allocate_raw(1024, Stream::current("cuda:0"));
/// memory::deallocate_raw(data);
/// @endcode
/// @since 0.2
[[nodiscard]] GANTRY_API void* allocate_raw(std::size_t bytes,
                                            const Stream& stream = Stream::current());
/// As allocate_raw(bytes, stream), in the order of allocate().
/// @since 0.2
[[nodiscard]] inline void* allocate_raw(const Stream& stream, std::size_t bytes) {
  return allocate_raw(bytes, stream);
}
/// Frees memory of allocate_raw(); work that is already submitted to its stream may still use it.
/// nullptr has no effect. Throws: InvalidArgument for any other pointer.
/// @since 0.2
GANTRY_API void deallocate_raw(void* data);

/// Releases all unused cached memory of every device to the driver. A MemPool without use_on_oom
/// keeps its memory until it is destroyed. Thread safety: any thread.
/// Example: `memory::empty_cache();`
/// @since 0.1
GANTRY_API void empty_cache();
/// Limits this process to `fraction` of the memory of `device`. Throws: InvalidArgument unless
/// 0 < fraction <= 1.
/// Example: `memory::set_fraction(0.5, "cuda:0");`
/// @since 0.1
GANTRY_API void set_fraction(double fraction, Device device = Device::cuda());
/// The fraction of the memory of `device` that this process may hold: that of set_fraction(), else
/// of GANTRY_ALLOC_CONF, else 1. Thread safety: any thread.
/// @since 0.3
[[nodiscard]] GANTRY_API double fraction(Device device = Device::cuda());
/// Adds a function that gets the device and the report before each OutOfMemoryError of device
/// memory is thrown. It cannot be removed. Its exceptions are logged. It may call gantry, and then
/// gets memory of the common pool; its own OutOfMemoryError calls no observer. Throws:
/// InvalidArgument for an empty function. Thread safety: any thread.
/// @code
/// memory::add_oom_observer([](Device device, const OomReport& report) {
///   std::cerr << device << " has no " << report.requested << " bytes\n";
/// });
/// @endcode
/// @since 0.1
GANTRY_API void add_oom_observer(std::function<void(Device, const OomReport&)> observer);

}  // namespace gantry::memory
