#include "memory/backends.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include <gantry/core/error.hpp>

#include "device/platform.hpp"
#include "memory/async/async_allocator.hpp"
#include "memory/heap_allocator.hpp"
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
    return made;
  }();
  return allocator;
}

AsyncAllocator& async_allocator() {
  static auto& allocator = *new AsyncAllocator(alloc_config(), &heap_allocator());
  return allocator;
}

Allocator& standard_allocator() {
  static Allocator& chosen = alloc_config().backend == "async"
                                 ? static_cast<Allocator&>(async_allocator())
                                 : heap_allocator();
  return chosen;
}

std::unique_ptr<Allocator> make_allocator(std::string_view backend, AllocConfig config) {
  config.backend = backend;
  if (backend == "async") return std::make_unique<AsyncAllocator>(config);
  if (backend == "vmm" || backend == "native") return std::make_unique<HeapAllocator>(config);
  throw InvalidArgument(
      fmt::format("make_allocator: expected one of vmm, native, async, but got '{}'", backend));
}

Stats stats_of(Allocator& allocator, int device) {
  if (auto* async = dynamic_cast<AsyncAllocator*>(&allocator)) return async->stats(device);
  return dynamic_cast<HeapAllocator&>(allocator).heap(device).stats();
}

void reset_peak_stats_of(Allocator& allocator, int device) {
  if (auto* async = dynamic_cast<AsyncAllocator*>(&allocator)) {
    async->reset_peak_stats(device);
  } else {
    dynamic_cast<HeapAllocator&>(allocator).heap(device).reset_peak_stats();
  }
}

void set_fraction_of(Allocator& allocator, int device, double fraction) {
  if (auto* async = dynamic_cast<AsyncAllocator*>(&allocator)) {
    async->set_fraction(fraction, device);
  } else {
    dynamic_cast<HeapAllocator&>(allocator).heap(device).set_fraction(fraction);
  }
}

}  // namespace gantry::memory
