// The caching allocator of all devices, over the driver's own segments.
#pragma once

#include <string>

#include <gantry/memory/allocator.hpp>

#include "memory/device_heap.hpp"
#include "streams/per_device.hpp"

namespace gantry::memory {

/// Backend "native": one DeviceHeap per device.
///
/// Never destroyed: static destructors of the user's program may still free device memory. In a bad
/// fork frees do nothing.
/// Thread safety: every member may be called from any thread.
class NativeAllocator final : public Allocator {
 public:
  /// The one of this process. Throws: InvalidArgument if GANTRY_ALLOC_CONF is malformed.
  [[nodiscard]] static NativeAllocator& instance();

  [[nodiscard]] Block allocate(std::size_t bytes, const Stream& stream) override;
  void deallocate(Block& block) noexcept override;
  void record_stream(const Block& block, const Stream& stream) override;
  void empty_cache(Device device) override;
  [[nodiscard]] std::string name() const override { return "native"; }

  /// The heap of `device`, an index that was checked.
  [[nodiscard]] DeviceHeap& heap(int device);

 private:
  NativeAllocator();

  const AllocConfig& config_;
  PerDevice<DeviceHeap> heaps_;
};

}  // namespace gantry::memory
