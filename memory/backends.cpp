#include "memory/backends.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "memory/async/async_allocator.hpp"
#include "memory/driver_memory.hpp"
#include "memory/heap/heap_allocator.hpp"

namespace gantry::memory {

HeapAllocator& heap_allocator() {
  static auto& allocator = *[] {
    auto* made = new HeapAllocator(alloc_config());
    offer_cached_memory();
    return made;
  }();
  return allocator;
}

DeviceAllocator& async_allocator() {
  static auto& allocator = *make_async_allocator(alloc_config(), &heap_allocator()).release();
  return allocator;
}

DeviceAllocator& standard_allocator() {
  static DeviceAllocator& chosen = []() -> DeviceAllocator& {
    if (alloc_config().backend->is_of_driver) return async_allocator();
    return heap_allocator();
  }();
  return chosen;
}

std::unique_ptr<DeviceAllocator> make_allocator(std::string_view backend, AllocConfig config) {
  config.backend = find_backend(backend);
  if (config.backend == nullptr || config.backend->name != backend) {
    throw InvalidArgument(
        fmt::format("make_allocator: expected one of vmm, native, async, but got '{}'", backend));
  }
  if (config.backend->is_of_driver) return make_async_allocator(config);
  return std::make_unique<HeapAllocator>(config);
}

}  // namespace gantry::memory
