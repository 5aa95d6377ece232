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

#include "memory/native_allocator.hpp"
#include "memory/oom_report.hpp"
#include "streams/require_cuda.hpp"

namespace gantry::memory {
namespace {

// What set_allocator put in place of the caching allocator.
struct Replacements {
  Replacements() : devices(static_cast<std::size_t>(device_count())) {}

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

// The pointers that alloc() gave out; only the raw API pays for this map.
struct RawBlocks {
  std::mutex mutex;
  std::unordered_map<void*, Block> blocks;
};

RawBlocks& raw_blocks() {
  static auto& instance = *new RawBlocks();
  return instance;
}

Device checked(Device device, std::string_view op) {
  return device.is_cpu() ? device : Device::cuda(require_cuda(device, op));
}

Allocator& standard_allocator(Device device) {
  return device.is_cpu() ? cpu_allocator() : NativeAllocator::instance();
}

// `device` is checked.
Allocator& allocator_of(Device device) {
  Allocator* replacement = replacements().slot(device).load(std::memory_order_acquire);
  return replacement != nullptr ? *replacement : standard_allocator(device);
}

}  // namespace

Allocator& allocator(Device device) { return allocator_of(checked(device, "allocator")); }

Allocator* set_allocator(Device device, Allocator* replacement) {
  const Device place = checked(device, "set_allocator");
  Allocator* before = replacements().slot(place).exchange(replacement, std::memory_order_acq_rel);
  return before != nullptr ? before : &standard_allocator(place);
}

std::string allocator_backend() {
  static_cast<void>(alloc_config());
  return "native";
}

Buffer allocate(std::size_t bytes, const Stream& stream) {
  return Buffer(allocator_of(stream.device()).allocate(bytes, stream));
}

void* alloc(std::size_t bytes, const Stream& stream) {
  Buffer buffer = allocate(bytes, stream);
  if (buffer.data() == nullptr) return nullptr;
  RawBlocks& raw = raw_blocks();
  const std::lock_guard lock(raw.mutex);
  raw.blocks.insert_or_assign(buffer.data(), buffer.block());
  return buffer.release().data;
}

void free(void* data) {
  if (data == nullptr || in_bad_fork()) return;
  RawBlocks& raw = raw_blocks();
  Block block;
  {
    const std::lock_guard lock(raw.mutex);
    const auto found = raw.blocks.find(data);
    if (found == raw.blocks.end()) {
      throw InvalidArgument(
          fmt::format("free: a pointer from gantry::memory::alloc was expected, but got {}", data));
    }
    block = found->second;
    raw.blocks.erase(found);
  }
  block.allocator->deallocate(block);
}

void empty_cache() {
  for (int i = 0; i < device_count(); ++i)
    allocator_of(Device::cuda(i)).empty_cache(Device::cuda(i));
}

void set_fraction(double fraction, Device device) {
  if (!(fraction > 0) || !(fraction <= 1)) {
    throw InvalidArgument(fmt::format(
        "set_fraction: a number above 0 and at most 1 was expected, but got {}", fraction));
  }
  NativeAllocator::instance().heap(require_cuda(device, "set_fraction")).set_fraction(fraction);
}

void add_oom_observer(std::function<void(Device, const MemoryBreakdown&)> observer) {
  if (!observer) {
    throw InvalidArgument("add_oom_observer: a function was expected, but got an empty one");
  }
  register_oom_observer(std::move(observer));
}

}  // namespace gantry::memory
