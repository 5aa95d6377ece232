#include "memory/async/async_allocator.hpp"

#include <algorithm>
#include <mutex>

#include "device/checked_device_index.hpp"
#include "memory/oom/memory_pressure.hpp"
#include "memory/policy/size_policy.hpp"
#include "memory/stats/counters.hpp"
#include "streams/capture.hpp"
#include "streams/sanitizer/hooks.hpp"

namespace gantry::memory {
namespace {

// Releases the memory that the driver's pool caches, for heaps that grow.
bool trim_pool(int device, Waiting /*waiting*/) noexcept {
  try {
    const std::size_t before = driver().pool_memory(device).reserved;
    driver().trim_pool(device, 0);
    return driver().pool_memory(device).reserved < before;
  } catch (...) {
    return false;  // the caller reports out of memory
  }
}

}  // namespace

AsyncAllocator::AsyncAllocator(const AllocConfig& config, HeapAllocator* captured)
    : config_(config),
      own_heaps_(captured == nullptr ? std::make_unique<HeapAllocator>(config) : nullptr),
      captured_(captured == nullptr ? *own_heaps_ : *captured) {
  static std::once_flag once;
  std::call_once(once, [] { MemoryPressureCallbacks::instance().add(trim_pool); });
}

AsyncAllocator::~AsyncAllocator() {
  for (int i = 0; i < pools_.size(); ++i) {
    if (DeviceHeap* heap = captured_.find_heap(i)) heap->set_neighbour(nullptr);
    delete pools_.find(i);
  }
}

AsyncPool& AsyncAllocator::pool(int device) {
  return pools_.get(device, [this](int index) {
    const auto reserved = [this, index]() -> std::size_t {
      DeviceHeap* const heap = captured_.find_heap(index);
      return heap == nullptr ? 0 : heap->reserved();
    };
    return new AsyncPool(
        index, config_.fraction,
        [this, index, reserved] {
          if (reserved() != 0) captured_.find_heap(index)->release_after_waits();
        },
        reserved);
  });
}

Block AsyncAllocator::allocate(const Stream& stream, std::size_t bytes, std::size_t alignment) {
  check_alignment(alignment);
  // An empty block makes no driver call that would notice a bad fork; driver() throws.
  if (in_bad_fork()) static_cast<void>(driver());
  Block block{.bytes = bytes, .device = stream.device()};
  if (bytes == 0) return block;
  if (is_captured(stream.native())) {
    AsyncPool& beside = pool(stream.native().device);
    captured_.heap(stream.native().device).set_neighbour(&beside);
    block = captured_.allocate(stream, bytes, alignment);
    beside.keep_bound();
    return block;
  }
  // The driver's own alignment is that of cudaMalloc.
  const std::size_t padding = std::max(alignment, kDefaultAlignment) - kDefaultAlignment;
  HeapBlock& made = pool(stream.native().device).allocate(bytes, stream, padding);
  if (sanitizer::is_on()) sanitizer::memory_allocated(made.data, made.bytes);
  block.data = align_up(made.data, alignment);
  block.allocator = this;
  block.handle = &made;
  return block;
}

// An allocator that forwards to this one gives every block back here, also those of captures.
bool AsyncAllocator::is_captured_block(const HeapBlock& block) { return block.arena != nullptr; }

void AsyncAllocator::deallocate(Block& block) noexcept {
  if (block.handle != nullptr && !in_bad_fork()) {
    HeapBlock& freed = *static_cast<HeapBlock*>(block.handle);
    if (is_captured_block(freed)) return captured_.deallocate(block);
    if (sanitizer::is_on()) [[unlikely]] {
      sanitizer::memory_freed(freed.data, freed.bytes, freed.uses.front().clock);
    }
    // The pool is there: it made the block.
    pools_.find(block.device.index)->deallocate(freed);
  }
  block = {};
}

void AsyncAllocator::record_stream(const Block& block, const Stream& stream) {
  if (block.handle == nullptr || in_bad_fork()) return;
  HeapBlock& used = *static_cast<HeapBlock*>(block.handle);
  if (is_captured_block(used)) return captured_.record_stream(block, stream);
  pool(block.device.index).record_stream(used, stream);
  if (sanitizer::is_on()) sanitizer::memory_recorded(used.data, stream, true);
}

void AsyncAllocator::empty_cache(Device device) {
  const int index = checked_device_index(device, "empty_cache");
  if (DeviceHeap* heap = captured_.find_heap(index)) heap->empty_cache();
  if (AsyncPool* made = pools_.find(index)) made->empty_cache();
}

DriverRelease AsyncAllocator::release_for_driver(int device) noexcept {
  AsyncPool* const made = pools_.find(device);
  return made == nullptr ? DriverRelease::none : made->release_for_driver();
}

void AsyncAllocator::prepare_for_capture() noexcept {
  for (int i = 0; i < pools_.size(); ++i) {
    if (AsyncPool* made = pools_.find(i)) made->prepare_for_capture();
  }
}

Stats AsyncAllocator::stats(int device) {
  Stats stats = pool(device).stats();
  if (DeviceHeap* heap = captured_.find_heap(device)) add(stats, heap->stats());
  return stats;
}

void AsyncAllocator::reset_peak_stats(int device) {
  pool(device).reset_peak_stats();
  if (DeviceHeap* heap = captured_.find_heap(device)) heap->reset_peak_stats();
}

void AsyncAllocator::verify() {
  for (int i = 0; i < pools_.size(); ++i) {
    if (AsyncPool* made = pools_.find(i)) made->verify();
  }
  captured_.verify();
}

void AsyncAllocator::set_fraction(double fraction, int device) {
  pool(device).set_fraction(fraction);
  captured_.heap(device).set_fraction(fraction);
}

}  // namespace gantry::memory
