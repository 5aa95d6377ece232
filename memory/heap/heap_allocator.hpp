// The caching allocator: one heap per device, with magazines in front.
#pragma once

#include <atomic>
#include <memory>

#include <gantry/memory/allocator.hpp>

#include "memory/arenas/exportable.hpp"
#include "memory/heap/device_heap.hpp"
#include "memory/policy/active_pool.hpp"
#include "memory/policy/backend.hpp"
#include "streams/per_device.hpp"

namespace gantry::memory {

/// Backends "vmm" and "native".
///
/// The allocator of the process is never destroyed, because static destructors
/// of the program may still free device memory. In a bad fork frees do nothing.
/// Thread safety: every member may be called from any thread.
class HeapAllocator final : public DeviceAllocator, public ExportableAllocator {
 public:
  explicit HeapAllocator(const AllocConfig& config) : config_(config) {}
  /// Releases unused memory. Its heaps stay: magazines of threads may point to them.
  ~HeapAllocator() override;
  HeapAllocator(const HeapAllocator&) = delete;
  HeapAllocator& operator=(const HeapAllocator&) = delete;

  [[nodiscard]] Block allocate(const Stream& stream, std::size_t bytes,
                               std::size_t alignment = kDefaultAlignment) override;
  void deallocate(Block& block) noexcept override;
  void record_stream(const Block& block, const Stream& stream) override {
    record(block, stream, true);
  }
  void record_use(const Block& block, const Stream& stream) override {
    record(block, stream, false);
  }
  void set_stream(const Block& block, const Stream& stream) override;
  void empty_cache(Device device) override;
  /// False while a pool has, or had and still uses, memory that peers cannot use.
  [[nodiscard]] bool is_peer_accessible() const override {
    return closed_pools_->load(std::memory_order_relaxed) == 0;
  }
  [[nodiscard]] std::string name() const override { return std::string(config_.backend->name); }

  [[nodiscard]] Stats stats(int device) override { return heap(device).stats(); }
  void reset_peak_stats(int device) override { heap(device).reset_peak_stats(); }
  void set_fraction(double fraction, int device) override { heap(device).set_fraction(fraction); }
  [[nodiscard]] double fraction(int device) override { return heap(device).fraction(); }
  [[nodiscard]] DriverRelease release_for_driver(int device) noexcept override {
    DeviceHeap* const made = find_heap(device);
    return made == nullptr ? DriverRelease::none : made->release_for_driver();
  }
  void prepare_for_capture() noexcept override {
    heaps_.for_each([](DeviceHeap& made) { made.find_completed(); });
  }
  void verify() override {
    heaps_.for_each([](DeviceHeap& made) { made.verify(); });
  }

  [[nodiscard]] BlockExtent pin(const Block& block) override;
  void unpin(const Block& block) noexcept override;
  void free_from_limbo(Block& block) noexcept override;

  /// As allocate, from one pool. In a capture both take the capture's pool.
  [[nodiscard]] Block allocate_from(Pool& pool, const Stream& stream, std::size_t bytes,
                                    std::size_t alignment);
  /// The heap of `device`, a checked index; find_heap: nullptr if it was never used.
  [[nodiscard]] DeviceHeap& heap(int device);
  [[nodiscard]] DeviceHeap* find_heap(int device) const { return heaps_.find(device); }
  [[nodiscard]] const AllocConfig& config() const { return config_; }
  /// A pool on `device`; its segments may be those of another allocator.
  [[nodiscard]] Pool& make_pool(int device, const MemPoolOptions& options);

 private:
  [[nodiscard]] Block allocate_on_created(const Stream& stream, std::size_t bytes,
                                          std::size_t alignment);
  [[nodiscard]] Block allocate_fast(const Stream& stream, std::size_t bytes, std::size_t alignment);
  [[nodiscard]] Block allocate_missed(Pool& pool, const Stream& stream, std::size_t bytes);
  [[nodiscard]] Block allocate_slow(Pool* chosen, const Stream& stream, std::size_t bytes,
                                    std::size_t alignment);
  [[nodiscard]] Block block_for(HeapBlock& made, std::byte* data, std::size_t bytes, int device) {
    return {.data = data,
            .bytes = bytes,
            .device = Device::cuda(device),
            .allocator = this,
            .handle = &made};
  }
  void deallocate_slow(Block& block) noexcept;
  void record(const Block& block, const Stream& stream, bool until_free);
  [[nodiscard]] Pool& pool_of_thread(const Stream& stream);
  [[nodiscard]] Pool& pool_of_capture(const Stream& stream, std::size_t bytes);

  const AllocConfig config_;
  PerDevice<DeviceHeap> heaps_;
  // Pools whose memory peers cannot use. Shared with these pools, which may live longer.
  const std::shared_ptr<std::atomic<int>> closed_pools_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace gantry::memory
