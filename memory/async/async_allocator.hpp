// The caching allocator of all devices over the driver's stream-ordered pools.
#pragma once

#include <memory>
#include <string>

#include <gantry/memory/allocator.hpp>
#include <gantry/memory/stats.hpp>

#include "memory/async/async_pool.hpp"
#include "memory/config.hpp"
#include "memory/device_allocator.hpp"
#include "memory/heap_allocator.hpp"
#include "streams/per_device.hpp"

namespace gantry::memory {

/// Backend "async": one pool per device, gantry's own, in which the driver decides about reuse.
///
/// Its blocks cannot be shared with other processes. Blocks for streams that are being captured
/// come from heaps beside it, whose memory stays where it is while a graph may use it, and go back
/// there. Statistics count blocks; the driver's segments are its secret and not counted. All
/// objects of this class share the pool of a device, so what one has cached serves the others and
/// is reserved by all of them. In a bad fork frees do nothing. Thread safety: every member may be
/// called from any thread.
class AsyncAllocator final : public DeviceAllocator {
 public:
  /// `config`: only its fraction matters for the pools. `captured`: the heaps for captures, which
  /// this object makes if it gets none.
  explicit AsyncAllocator(const AllocConfig& config, HeapAllocator* captured = nullptr);
  /// It must have got all its blocks back.
  ~AsyncAllocator() override;
  AsyncAllocator(const AsyncAllocator&) = delete;
  AsyncAllocator& operator=(const AsyncAllocator&) = delete;

  [[nodiscard]] Block allocate(const Stream& stream, std::size_t bytes,
                               std::size_t alignment = kDefaultAlignment) override;
  void deallocate(Block& block) noexcept override;
  void record_stream(const Block& block, const Stream& stream) override;
  /// Waits for the device: the driver keeps memory until its free is reached.
  void empty_cache(Device device) override;
  [[nodiscard]] bool is_peer_accessible() const override { return true; }
  [[nodiscard]] std::string name() const override { return "async"; }

  /// Of both sources.
  [[nodiscard]] Stats stats(int device) override;
  void reset_peak_stats(int device) override;
  /// Of either source.
  void set_fraction(double fraction, int device) override;

 private:
  [[nodiscard]] AsyncPool& pool(int device);

  const AllocConfig config_;
  const std::unique_ptr<HeapAllocator> own_heaps_;
  HeapAllocator& captured_;
  PerDevice<AsyncPool> pools_;
};

}  // namespace gantry::memory
