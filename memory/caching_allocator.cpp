#include <gantry/memory/caching_allocator.hpp>

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/cpu_allocator.hpp>

#include "core/pointer_table.hpp"
#include "device/checked_device_index.hpp"
#include "device/platform/platform.hpp"
#include "memory/backends.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "memory/oom/oom_report.hpp"
#include "memory/policy/active_pool.hpp"
#include "streams/sanitizer/hooks.hpp"

namespace gantry::memory {
namespace {

// The allocator of a program in the place of a built-in one.
//
// Reading an empty place costs one load.
// Thread safety: every member may be called from any thread.
class Replacement {
 public:
  // Sets the allocator, nullptr for none, and returns the previous one.
  std::shared_ptr<Allocator> exchange(std::shared_ptr<Allocator> allocator) noexcept {
    const std::lock_guard lock(mutex_);
    is_set_.store(allocator != nullptr, std::memory_order_release);
    return std::exchange(allocator_, std::move(allocator));
  }
  // The allocator; nullptr if there is none.
  [[nodiscard]] std::shared_ptr<Allocator> get() const {
    const std::lock_guard lock(mutex_);
    return allocator_;
  }
  // False if get() returns nullptr. It takes no lock.
  [[nodiscard]] bool is_set() const noexcept { return is_set_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> is_set_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<Allocator> allocator_;
};

// What set_allocator put in place of the built-in allocators.
struct Replacements {
  Replacements() : devices(static_cast<std::size_t>(table_size())) {}

  [[nodiscard]] Replacement& of(Device device) {
    return device.is_cpu() ? cpu : devices[static_cast<std::size_t>(device.index)];
  }

  Replacement cpu;
  std::vector<Replacement> devices;
};

Replacements& replacements() {
  static auto& instance = *new Replacements();
  return instance;
}

// What allocate_raw() gave out. Blocks of heaps are found by address; the map is for other
// allocators'.
struct RawBlocks {
  PointerTable<HeapBlock> heap_blocks;
  std::mutex mutex;
  std::unordered_map<void*, Buffer> others;
};

RawBlocks& raw_blocks() {
  static auto& instance = *new RawBlocks();
  return instance;
}

Device checked(Device device, std::string_view op) {
  return device.is_cpu() ? device : Device::cuda(checked_device_index(device, op));
}

Allocator& built_in_allocator(Device device) {
  return device.is_cpu() ? cpu_allocator() : standard_allocator();
}

}  // namespace

Allocator& allocator(Device device) {
  const Device place = checked(device, "allocator");
  const auto replacement = replacements().of(place).get();
  return replacement != nullptr ? *replacement : built_in_allocator(place);
}

std::shared_ptr<Allocator> set_allocator(Device device, std::shared_ptr<Allocator> replacement) {
  return replacements().of(checked(device, "set_allocator")).exchange(std::move(replacement));
}

std::string allocator_backend() { return standard_allocator().name(); }

Buffer allocate(const Stream& stream, std::size_t bytes, std::size_t alignment) {
  const Device device = stream.device();
  if (const Replacement& place = replacements().of(device); place.is_set()) [[unlikely]] {
    if (auto set = place.get()) {
      const NoActivePool scope;
      const Block block = set->allocate(stream, bytes, alignment);
      // It may reuse memory by rules of its own.
      if (sanitizer::is_on()) sanitizer::memory_allocated(block.data, bytes);
      return Buffer(block, std::move(set));
    }
  }
  return Buffer(built_in_allocator(device).allocate(stream, bytes, alignment));
}

void* allocate_raw(std::size_t bytes, const Stream& stream) {
  const Device device = stream.device();
  RawBlocks& raw = raw_blocks();
  if (replacements().of(device).is_set()) [[unlikely]] {
    Buffer buffer = allocate(stream, bytes);
    void* const data = buffer.data();
    if (data == nullptr) return nullptr;
    const std::lock_guard lock(raw.mutex);
    raw.others[data] = std::move(buffer);
    return data;
  }
  // A Buffer, which may have an owner, would cost a half more.
  Block block = built_in_allocator(device).allocate(stream, bytes);
  if (block.data == nullptr) return nullptr;
  try {
    if (block.allocator == &heap_allocator()) {
      raw.heap_blocks.insert(block.data, *static_cast<HeapBlock*>(block.handle));
    } else {
      const std::lock_guard lock(raw.mutex);
      Buffer& place = raw.others[block.data];
      place = Buffer(block);
    }
  } catch (...) {
    block.allocator->deallocate(block);
    throw;
  }
  return block.data;
}

void deallocate_raw(void* data) {
  if (data == nullptr || in_bad_fork()) return;
  RawBlocks& raw = raw_blocks();
  HeapBlock* const found = raw.heap_blocks.take(data);
  if (found == nullptr) [[unlikely]] {
    const NoActivePool scope;
    std::unique_lock lock(raw.mutex);
    auto other = raw.others.extract(data);
    lock.unlock();
    if (!other.empty()) return other.mapped().reset();
    throw InvalidArgument(fmt::format(
        "deallocate_raw: expected a pointer from gantry::memory::allocate_raw, but got {}", data));
  }
  Block block{.data = data,
              .bytes = found->requested.load(std::memory_order_relaxed),
              .device = Device::cuda(owner_of(*found).heap->device()),
              .allocator = &heap_allocator(),
              .handle = found};
  block.allocator->deallocate(block);
}

void empty_cache() {
  for (int i = 0; i < device_count(); ++i) {
    const Device device = Device::cuda(i);
    const auto replacement = replacements().of(device).get();
    const NoActivePool scope;
    (replacement != nullptr ? *replacement : built_in_allocator(device)).empty_cache(device);
  }
}

void set_fraction(double fraction, Device device) {
  if (!(fraction > 0) || !(fraction <= 1)) {
    throw InvalidArgument(
        fmt::format("set_fraction: expected a number above 0 and at most 1, but got {}", fraction));
  }
  const int index = checked_device_index(device, "set_fraction");
  standard_allocator().set_fraction(fraction, index);
}

double fraction(Device device) {
  return standard_allocator().fraction(checked_device_index(device, "fraction"));
}

void add_oom_observer(std::function<void(Device, const OomReport&)> observer) {
  if (!observer) {
    throw InvalidArgument("add_oom_observer: expected a function, but got an empty one");
  }
  register_oom_observer(std::move(observer));
}

}  // namespace gantry::memory
