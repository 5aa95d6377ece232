#pragma once

#include <cstddef>

#include <gantry/core/export.hpp>
#include <gantry/memory/allocator.hpp>

namespace gantry::memory {

/// Least alignment of every block of the CPU allocator, in bytes.
inline constexpr std::size_t kCpuAlignment = 64;

/// The allocator of ordinary host memory. It caches nothing and ignores streams. A free returns the
/// memory to the system at once. Precondition of a free: all work that uses the memory is complete.
/// @since 0.1
[[nodiscard]] GANTRY_API Allocator& cpu_allocator();

/// Allocates `bytes` of ordinary host memory from cpu_allocator(). It needs no stream, so it also
/// serves programs without a device. 0 bytes give a null block.
/// Throws: OutOfMemoryError; InvalidArgument unless `alignment` is a power of two.
/// @since 0.1
[[nodiscard]] GANTRY_API Block allocate_cpu(std::size_t bytes,
                                            std::size_t alignment = kCpuAlignment);

}  // namespace gantry::memory
