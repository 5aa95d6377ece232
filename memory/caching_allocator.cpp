#include <gantry/memory/caching_allocator.hpp>

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/cpu_allocator.hpp>

#include "device/checked_device_index.hpp"
#include "device/platform.hpp"
#include "memory/backends.hpp"
#include "memory/heap_allocator.hpp"
#include "memory/oom_report.hpp"
#include "memory/pointer_table.hpp"

namespace gantry::memory {
namespace {

// What set_allocator put in place of the caching allocator.
struct Replacements {
  Replacements() : devices(static_cast<std::size_t>(table_size())) {}

  [[nodiscard]] std::atomic<Allocator*>& slot(Device device) {
    return device.is_cpu() ? cpu : devices[static_cast<std::size_t>(device.index)];
  }

  std::atomic<Allocator*> cpu{nullptr};
  std::vector<std::atomic<Allocator*>> devices;
};

Replacements& replacements() {
  static auto& instance = *new Replacements();
  return instance;
}

// What alloc() gave out. Blocks of heaps are found by address; the map is for other allocators'.
struct RawBlocks {
  PointerTable heap_blocks;
  std::mutex mutex;
  std::unordered_map<void*, Block> others;
};

RawBlocks& raw_blocks() {
  static auto& instance = *new RawBlocks();
  return instance;
}

// The block of a pointer from alloc(), which is forgotten. Throws: InvalidArgument.
Block take_raw(void* data) {
  RawBlocks& raw = raw_blocks();
  if (HeapBlock* found = raw.heap_blocks.take(data)) {
    return {.data = data,
            .bytes = found->requested.load(std::memory_order_relaxed),
            .device = Device::cuda(found->arena->owner().heap->device()),
            .allocator = &heap_allocator(),
            .handle = found};
  }
  const std::lock_guard lock(raw.mutex);
  const auto found = raw.others.find(data);
  if (found == raw.others.end()) {
    throw InvalidArgument(
        fmt::format("free: expected a pointer from gantry::memory::alloc, but got {}", data));
  }
  const Block block = found->second;
  raw.others.erase(found);
  return block;
}

Device checked(Device device, std::string_view op) {
  return device.is_cpu() ? device : Device::cuda(checked_device_index(device, op));
}

Allocator& allocator_without_replacement(Device device) {
  return device.is_cpu() ? cpu_allocator() : standard_allocator();
}

// `device` is checked.
Allocator& allocator_of(Device device) {
  Allocator* replacement = replacements().slot(device).load(std::memory_order_acquire);
  return replacement != nullptr ? *replacement : allocator_without_replacement(device);
}

}  // namespace

Allocator& allocator(Device device) { return allocator_of(checked(device, "allocator")); }

Allocator* set_allocator(Device device, Allocator* replacement) {
  const Device place = checked(device, "set_allocator");
  Allocator* before = replacements().slot(place).exchange(replacement, std::memory_order_acq_rel);
  return before != nullptr ? before : &allocator_without_replacement(place);
}

std::string allocator_backend() { return standard_allocator().name(); }

Buffer allocate(std::size_t bytes, const Stream& stream) {
  return Buffer(allocator_of(stream.device()).allocate(bytes, stream));
}

void* alloc(std::size_t bytes, const Stream& stream) {
  Buffer buffer = allocate(bytes, stream);
  if (buffer.data() == nullptr) return nullptr;
  RawBlocks& raw = raw_blocks();
  if (buffer.block().allocator == &heap_allocator()) {
    raw.heap_blocks.insert(buffer.data(), *static_cast<HeapBlock*>(buffer.block().handle));
  } else {
    const std::lock_guard lock(raw.mutex);
    raw.others.insert_or_assign(buffer.data(), buffer.block());
  }
  return buffer.release().data;
}

void free(void* data) {
  if (data == nullptr || in_bad_fork()) return;
  Block block = take_raw(data);
  block.allocator->deallocate(block);
}

void empty_cache() {
  for (int i = 0; i < device_count(); ++i)
    allocator_of(Device::cuda(i)).empty_cache(Device::cuda(i));
}

void set_fraction(double fraction, Device device) {
  if (!(fraction > 0) || !(fraction <= 1)) {
    throw InvalidArgument(
        fmt::format("set_fraction: expected a number above 0 and at most 1, but got {}", fraction));
  }
  const int index = checked_device_index(device, "set_fraction");
  standard_allocator().set_fraction(fraction, index);
}

void add_oom_observer(std::function<void(Device, const OomReport&)> observer) {
  if (!observer) {
    throw InvalidArgument("add_oom_observer: expected a function, but got an empty one");
  }
  register_oom_observer(std::move(observer));
}

}  // namespace gantry::memory
