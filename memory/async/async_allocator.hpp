// The caching allocator of all devices over the driver's stream-ordered pools.
#pragma once

#include <memory>

#include "memory/policy/backend.hpp"
#include "memory/policy/config.hpp"

namespace gantry::memory {

class HeapAllocator;

/// Makes an allocator of backend "async": one memory pool of the driver per device. The driver
/// decides about reuse.
///
/// Blocks for captured streams come from the heaps `captured` beside the pools, because their
/// memory must stay in place while a graph may use it; nullptr: from heaps of its own. Of `config`
/// the pools use the fraction only. Blocks of the pools cannot be shared with other processes.
/// Statistics are sums of a pool and a heap; they count blocks, since the driver does not report
/// the segments of its pools. All such allocators share the pool of a device: memory that one has
/// cached serves the others, and counts as reserved in the statistics of each. In a process that
/// was forked after CUDA was used, frees do nothing. Destroy it when all its blocks are freed.
[[nodiscard]] std::unique_ptr<DeviceAllocator> make_async_allocator(
    const AllocConfig& config, HeapAllocator* captured = nullptr);

}  // namespace gantry::memory
