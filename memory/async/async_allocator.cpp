#include "memory/async/async_allocator.hpp"

#include <algorithm>
#include <mutex>

#include "core/assert.hpp"
#include "device/checked_device_index.hpp"
#include "memory/async/async_pool.hpp"
#include "memory/oom/memory_pressure.hpp"
#include "memory/policy/size_policy.hpp"
#include "memory/stats/counters.hpp"
#include "streams/capture.hpp"
#include "streams/per_device.hpp"
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

// An allocator that forwards to this one gives every block back here, also those of captures.
bool is_captured_block(const HeapBlock& block) { return block.arena != nullptr; }

class AsyncAllocator final : public DeviceAllocator {
 public:
  AsyncAllocator(const AllocConfig& config, HeapAllocator* captured)
      : config_(config),
        own_heaps_(captured == nullptr ? std::make_unique<HeapAllocator>(config) : nullptr),
        captured_(captured == nullptr ? *own_heaps_ : *captured) {
    static std::once_flag once;
    std::call_once(once, [] { MemoryPressureCallbacks::instance().add(trim_pool); });
  }
  ~AsyncAllocator() override {
    for (int i = 0; i < pools_.size(); ++i) {
      if (DeviceHeap* heap = captured_.find_heap(i)) heap->set_neighbour(nullptr);
      delete pools_.find(i);
    }
  }

  [[nodiscard]] Block allocate(const Stream& stream, std::size_t bytes,
                               std::size_t alignment) override {
    check_alignment(alignment);
    // An empty block makes no driver call that would notice a bad fork; driver() throws.
    if (in_bad_fork()) static_cast<void>(driver());
    Block block{.bytes = bytes, .device = stream.device()};
    if (bytes == 0) return block;
    const int device = stream.native().device;
    if (is_captured(stream.native())) {
      AsyncPool& beside = pool(device);
      captured_.heap(device).set_neighbour(&beside);
      block = captured_.allocate(stream, bytes, alignment);
      beside.keep_bound();
      return block;
    }
    // The driver's own alignment is that of cudaMalloc.
    const std::size_t padding = std::max(alignment, kDefaultAlignment) - kDefaultAlignment;
    HeapBlock& made = pool(device).allocate(bytes, stream, padding);
    if (sanitizer::is_on()) sanitizer::memory_allocated(made.data, made.bytes);
    block.data = align_up(made.data, alignment);
    block.allocator = this;
    block.handle = &made;
    return block;
  }
  void deallocate(Block& block) noexcept override {
    if (block.handle != nullptr && !in_bad_fork()) {
      HeapBlock& freed = *static_cast<HeapBlock*>(block.handle);
      if (is_captured_block(freed)) return captured_.deallocate(block);
      GANTRY_ASSERT(!freed.uses.empty(), "a block of the driver's pool has no stream");
      if (sanitizer::is_on()) [[unlikely]] {
        sanitizer::memory_freed(freed.data, freed.bytes, freed.uses.front().clock);
      }
      // The pool is there: it made the block.
      pools_.find(block.device.index)->deallocate(freed);
    }
    block = {};
  }
  void record_stream(const Block& block, const Stream& stream) override {
    if (block.handle == nullptr || in_bad_fork()) return;
    HeapBlock& used = *static_cast<HeapBlock*>(block.handle);
    if (is_captured_block(used)) return captured_.record_stream(block, stream);
    pool(block.device.index).record_stream(used, stream);
    if (sanitizer::is_on()) sanitizer::memory_recorded(used.data, stream, true);
  }
  void set_stream(const Block& block, const Stream& stream) override {
    if (block.handle == nullptr || in_bad_fork()) return;
    HeapBlock& used = *static_cast<HeapBlock*>(block.handle);
    if (is_captured_block(used)) return captured_.set_stream(block, stream);
    pool(block.device.index).set_stream(used, stream);
    if (sanitizer::is_on()) sanitizer::memory_recorded(used.data, stream, false);
  }
  // Waits for the streams of its frees: the driver keeps memory until its free is reached.
  void empty_cache(Device device) override {
    const int index = checked_device_index(device, "empty_cache");
    if (DeviceHeap* heap = captured_.find_heap(index)) heap->empty_cache();
    if (AsyncPool* made = pools_.find(index)) made->empty_cache();
  }
  [[nodiscard]] bool is_peer_accessible() const override { return true; }
  [[nodiscard]] std::string name() const override { return "async"; }

  [[nodiscard]] Stats stats(int device) override {
    Stats stats = pool(device).stats();
    if (DeviceHeap* heap = captured_.find_heap(device)) add(stats, heap->stats());
    return stats;
  }
  void reset_peak_stats(int device) override {
    pool(device).reset_peak_stats();
    if (DeviceHeap* heap = captured_.find_heap(device)) heap->reset_peak_stats();
  }
  // Limits the pool and the heap for captures, each to `fraction`.
  void set_fraction(double fraction, int device) override {
    pool(device).set_fraction(fraction);
    captured_.heap(device).set_fraction(fraction);
  }
  [[nodiscard]] double fraction(int device) override { return captured_.fraction(device); }
  [[nodiscard]] DriverRelease release_for_driver(int device) noexcept override {
    const DriverRelease of_heap = captured_.release_for_driver(device);
    AsyncPool* const made = pools_.find(device);
    return made == nullptr ? of_heap : std::max(of_heap, made->release_for_driver());
  }
  void prepare_for_capture() noexcept override {
    captured_.prepare_for_capture();
    pools_.for_each([](AsyncPool& made) { made.prepare_for_capture(); });
  }
  void verify() override {
    pools_.for_each([](AsyncPool& made) { made.verify(); });
    captured_.verify();
  }

 private:
  [[nodiscard]] AsyncPool& pool(int device) {
    return pools_.get(
        device, [this](int index) { return new AsyncPool(index, config_.fraction, captured_); });
  }

  const AllocConfig config_;
  const std::unique_ptr<HeapAllocator> own_heaps_;
  HeapAllocator& captured_;
  PerDevice<AsyncPool> pools_;
};

}  // namespace

std::unique_ptr<DeviceAllocator> make_async_allocator(const AllocConfig& config,
                                                      HeapAllocator* captured) {
  return std::make_unique<AsyncAllocator>(config, captured);
}

}  // namespace gantry::memory
