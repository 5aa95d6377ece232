// The built-in allocators of device memory, from which GANTRY_ALLOC_CONF=backend:… chooses.
#pragma once

#include <memory>
#include <string_view>

#include "memory/policy/backend.hpp"
#include "memory/policy/config.hpp"

namespace gantry::memory {

class HeapAllocator;

/// The device allocator of this process, chosen by GANTRY_ALLOC_CONF.
/// Throws: InvalidArgument if the variable is malformed; NotSupported if the device lacks support.
[[nodiscard]] DeviceAllocator& standard_allocator();
/// The heap allocator of this process. With backend async it serves captures.
[[nodiscard]] HeapAllocator& heap_allocator();
/// The async allocator of this process, never destroyed: static destructors of the user's program
/// may still free device memory. Throws: InvalidArgument if GANTRY_ALLOC_CONF is malformed.
[[nodiscard]] DeviceAllocator& async_allocator();

/// A separate allocator: "vmm", "native" or "async". It must outlive its blocks.
/// Throws: InvalidArgument for another name.
[[nodiscard]] std::unique_ptr<DeviceAllocator> make_allocator(std::string_view backend,
                                                              AllocConfig config);

}  // namespace gantry::memory
