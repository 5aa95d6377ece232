#pragma once

#include <cstddef>

#include <gantry/memory/allocator.hpp>
#include <gantry/memory/buffer.hpp>

namespace gantry::memory {

/// The caching allocator of page-locked host memory. Blocks live on the CPU; `stream` of allocate
/// is ignored, record_stream keeps a freed block back until that stream's work is done.
[[nodiscard]] Allocator& pinned_allocator();

/// `bytes` of page-locked host memory. Without a platform: ordinary host memory.
[[nodiscard]] Buffer pinned(std::size_t bytes);

/// True if `data` points into page-locked host memory that gantry or CUDA knows.
[[nodiscard]] bool is_pinned(const void* data);

}  // namespace gantry::memory
