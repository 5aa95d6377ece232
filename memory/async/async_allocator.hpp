// The caching allocator of all devices over the driver's stream-ordered pools.
#pragma once

#include <memory>
#include <string>

#include <gantry/memory/allocator.hpp>
#include <gantry/memory/stats.hpp>

#include "memory/async/async_pool.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "memory/policy/backend.hpp"
#include "memory/policy/config.hpp"
#include "streams/per_device.hpp"

namespace gantry::memory {

/// Backend "async": one memory pool of the driver per device. The driver decides about reuse.
///
/// Blocks for captured streams come from DeviceHeaps beside the pools, because their memory must
/// stay in place while a graph may use it. Blocks of the pools cannot be shared with other
/// processes. Statistics count blocks; the driver does not report the segments of its pools. All
/// objects of this class share the pool of a device: memory that one object has cached serves the
/// others, and counts as reserved in the statistics of each. In a process that was forked after
/// CUDA was used, frees do nothing.
/// Thread safety: every member may be called from any thread.
class AsyncAllocator final : public DeviceAllocator {
 public:
  /// `config`: the pools use its fraction only. `captured`: the heaps for captures; nullptr: own
  /// heaps.
  explicit AsyncAllocator(const AllocConfig& config, HeapAllocator* captured = nullptr);
  /// Requires that all its blocks are freed.
  ~AsyncAllocator() override;
  AsyncAllocator(const AsyncAllocator&) = delete;
  AsyncAllocator& operator=(const AsyncAllocator&) = delete;

  [[nodiscard]] Block allocate(const Stream& stream, std::size_t bytes,
                               std::size_t alignment = kDefaultAlignment) override;
  void deallocate(Block& block) noexcept override;
  void record_stream(const Block& block, const Stream& stream) override;
  /// Waits for the streams of its frees: the driver keeps memory until its free is reached.
  void empty_cache(Device device) override;
  /// See AsyncPool::release_for_driver().
  [[nodiscard]] DriverRelease release_for_driver(int device) noexcept;
  /// See AsyncPool::prepare_for_capture(); for every device.
  void prepare_for_capture() noexcept;
  [[nodiscard]] bool is_peer_accessible() const override { return true; }
  [[nodiscard]] std::string name() const override { return "async"; }

  /// Sums of the pool and of the heap for captures.
  [[nodiscard]] Stats stats(int device) override;
  void reset_peak_stats(int device) override;
  [[nodiscard]] double fraction(int device) override { return captured_.heap(device).fraction(); }
  /// Limits the pool and the heap for captures, each to `fraction`.
  void set_fraction(double fraction, int device) override;
  void verify() override;

 private:
  [[nodiscard]] AsyncPool& pool(int device);

  const AllocConfig config_;
  const std::unique_ptr<HeapAllocator> own_heaps_;
  HeapAllocator& captured_;
  [[nodiscard]] static bool is_captured_block(const HeapBlock& block);

  PerDevice<AsyncPool> pools_;
};

}  // namespace gantry::memory
