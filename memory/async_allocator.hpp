// The caching allocator of all devices over the driver's stream-ordered pools.
#pragma once

#include <string>

#include <gantry/memory/allocator.hpp>
#include <gantry/memory/stats.hpp>

#include "memory/async_pool.hpp"
#include "memory/config.hpp"
#include "streams/per_device.hpp"

namespace gantry::memory {

/// Backend "async": one pool per device, gantry's own, in which the driver decides about reuse.
///
/// Its blocks cannot be shared with other processes, and not be allocated in a capture. Statistics
/// count blocks; segments are the driver's secret and stay 0. All objects of this class share the
/// pool of a device, so what one has cached serves the others and is reserved by all of them. In a
/// bad fork frees do nothing.
/// Thread safety: every member may be called from any thread.
class AsyncAllocator final : public Allocator {
 public:
  /// The one of this process, never destroyed: static destructors of the user's program may still
  /// free device memory. Throws: InvalidArgument if GANTRY_ALLOC_CONF is malformed.
  [[nodiscard]] static AsyncAllocator& instance();
  /// `config`: only its fraction matters here.
  explicit AsyncAllocator(const AllocConfig& config) : config_(config) {}
  /// It must have got all its blocks back.
  ~AsyncAllocator() override;
  AsyncAllocator(const AsyncAllocator&) = delete;
  AsyncAllocator& operator=(const AsyncAllocator&) = delete;

  [[nodiscard]] Block allocate(std::size_t bytes, Stream stream) override;
  void deallocate(Block& block) noexcept override;
  void record_stream(const Block& block, const Stream& stream) override;
  /// Waits for the device: the driver keeps memory until its free is reached.
  void empty_cache(Device device) override;
  [[nodiscard]] bool opens_to_peers() const override { return true; }
  [[nodiscard]] std::string name() const override { return "async"; }

  /// Of `device`, an index that was checked.
  [[nodiscard]] Stats stats(int device) { return pool(device).stats(); }
  void reset_peak_stats(int device) { pool(device).reset_peak_stats(); }
  void set_fraction(double fraction, int device) { pool(device).set_fraction(fraction); }

 private:
  [[nodiscard]] AsyncPool& pool(int device);

  const AllocConfig config_;
  PerDevice<AsyncPool> pools_;
};

}  // namespace gantry::memory
