#pragma once

#include <cstddef>

#include <gantry/core/export.hpp>
#include <gantry/memory/allocator.hpp>
#include <gantry/memory/buffer.hpp>

namespace gantry::memory {

/// The caching allocator of page-locked host memory. Its blocks are on the CPU, and allocate()
/// ignores the stream. After record_stream(), a freed block is not reused before that stream
/// completes the work submitted before the free.
/// @since 0.1
[[nodiscard]] GANTRY_API Allocator& pinned_allocator();

/// Allocates `bytes` of page-locked host memory; without a platform, of ordinary host memory. 0
/// bytes give an empty buffer.
/// Throws: OutOfMemoryError; InvalidArgument unless `alignment` is a power of two.
/// Example: `const memory::Buffer staging = memory::pinned(1 << 20);`
/// @since 0.1
[[nodiscard]] GANTRY_API Buffer pinned(std::size_t bytes,
                                       std::size_t alignment = kDefaultAlignment);

/// True if `data` points into page-locked host memory of gantry, or of other code that uses CUDA.
/// Always false before gantry has initialised the platform (is_initialized()).
/// @since 0.1
[[nodiscard]] GANTRY_API bool is_pinned(const void* data);

}  // namespace gantry::memory
