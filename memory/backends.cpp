#include "memory/backends.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include <gantry/core/error.hpp>

#include "device/platform.hpp"
#include "memory/async/async_allocator.hpp"
#include "memory/driver_memory.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "memory/trace/history.hpp"

namespace gantry::memory {
namespace {

std::vector<HeldSegments> standard_segments() {
  std::vector<HeldSegments> all;
  for (int i = 0; i < table_size(); ++i) {
    if (DeviceHeap* heap = heap_allocator().find_heap(i)) all.push_back(heap->segments());
  }
  return all;
}

}  // namespace

HeapAllocator& heap_allocator() {
  static auto& allocator = *[] {
    auto* made = new HeapAllocator(alloc_config());
    set_segment_source(standard_segments);
    offer_cached_memory();
    return made;
  }();
  return allocator;
}

AsyncAllocator& async_allocator() {
  static auto& allocator = *new AsyncAllocator(alloc_config(), &heap_allocator());
  return allocator;
}

DeviceAllocator& standard_allocator() {
  static DeviceAllocator& chosen = alloc_config().backend == "async"
                                       ? static_cast<DeviceAllocator&>(async_allocator())
                                       : heap_allocator();
  return chosen;
}

std::unique_ptr<DeviceAllocator> make_allocator(std::string_view backend, AllocConfig config) {
  config.backend = backend;
  if (backend == "async") return std::make_unique<AsyncAllocator>(config);
  if (backend == "vmm" || backend == "native") return std::make_unique<HeapAllocator>(config);
  throw InvalidArgument(
      fmt::format("make_allocator: expected one of vmm, native, async, but got '{}'", backend));
}

}  // namespace gantry::memory
