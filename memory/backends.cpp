#include "memory/backends.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

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

AsyncAllocator& async_allocator() {
  static auto& allocator = *new AsyncAllocator(alloc_config(), &heap_allocator());
  return allocator;
}

namespace {

// The allocators of a backend: the one of this process, and separate ones.
struct Makers {
  std::string_view backend;
  DeviceAllocator& (*standard)();
  std::unique_ptr<DeviceAllocator> (*separate)(const AllocConfig& config);
};

DeviceAllocator& standard_heap() { return heap_allocator(); }
DeviceAllocator& standard_pools() { return async_allocator(); }
std::unique_ptr<DeviceAllocator> make_heap(const AllocConfig& config) {
  return std::make_unique<HeapAllocator>(config);
}
std::unique_ptr<DeviceAllocator> make_pools(const AllocConfig& config) {
  return std::make_unique<AsyncAllocator>(config);
}

constexpr std::array kMakers{Makers{"vmm", standard_heap, make_heap},
                             Makers{"native", standard_heap, make_heap},
                             Makers{"async", standard_pools, make_pools}};

constexpr bool all_backends_are_made() {
  return std::equal(
      kBackends.begin(), kBackends.end(), kMakers.begin(), kMakers.end(),
      [](const Backend& backend, const Makers& makers) { return backend.name == makers.backend; });
}
static_assert(all_backends_are_made(), "a row for each backend, in the same order");

const Makers& makers_of(const Backend* backend) {
  return kMakers[static_cast<std::size_t>(backend - kBackends.data())];
}

}  // namespace

DeviceAllocator& standard_allocator() {
  static DeviceAllocator& chosen = makers_of(alloc_config().backend).standard();
  return chosen;
}

std::unique_ptr<DeviceAllocator> make_allocator(std::string_view backend, AllocConfig config) {
  config.backend = find_backend(backend);
  if (config.backend == nullptr || config.backend->name != backend) {
    throw InvalidArgument(
        fmt::format("make_allocator: expected one of vmm, native, async, but got '{}'", backend));
  }
  return makers_of(config.backend).separate(config);
}

}  // namespace gantry::memory
