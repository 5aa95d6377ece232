#pragma once

#include <cstddef>

#include <gantry/memory/allocator.hpp>

namespace gantry::memory {

/// Alignment of every block of the CPU allocator, in bytes.
inline constexpr std::size_t kCpuAlignment = 64;

/// The allocator of ordinary host memory. Nothing is cached: a free gives the memory back at once,
/// so work that still uses it must have ended; streams are ignored.
[[nodiscard]] Allocator& cpu_allocator();

/// `bytes` of ordinary host memory from cpu_allocator(), for programs that have no stream because
/// they have no device. 0 bytes give a null block. Throws: OutOfMemoryError.
[[nodiscard]] Block allocate_cpu(std::size_t bytes);

}  // namespace gantry::memory
