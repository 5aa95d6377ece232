// The built-in allocators of device memory, from which GANTRY_ALLOC_CONF=backend:… chooses.
#pragma once

#include <memory>
#include <string_view>

#include <gantry/memory/allocator.hpp>
#include <gantry/memory/stats.hpp>

#include "memory/config.hpp"

namespace gantry::memory {

class AsyncAllocator;
class HeapAllocator;

/// An allocator of device memory with statistics and a limit. `device` is a checked index.
/// Thread safety: every member may be called from any thread.
class DeviceAllocator : public Allocator {
 public:
  [[nodiscard]] virtual Stats stats(int device) = 0;
  virtual void reset_peak_stats(int device) = 0;
  /// Limits the memory held on the device to a share of its memory.
  virtual void set_fraction(double fraction, int device) = 0;
  [[nodiscard]] virtual double fraction(int device) = 0;
  /// Asserts what holds between two calls; no other thread may call meanwhile.
  virtual void verify() = 0;
};

/// The device allocator of this process, chosen by GANTRY_ALLOC_CONF.
/// Throws: InvalidArgument if the variable is malformed; NotSupported if the device lacks support.
[[nodiscard]] DeviceAllocator& standard_allocator();
/// The heap allocator of this process. With backend async it serves captures.
[[nodiscard]] HeapAllocator& heap_allocator();
/// The async allocator of this process, never destroyed: static destructors of the user's program
/// may still free device memory. Throws: InvalidArgument if GANTRY_ALLOC_CONF is malformed.
[[nodiscard]] AsyncAllocator& async_allocator();

/// A separate allocator: "vmm", "native" or "async". It must outlive its blocks.
/// Throws: InvalidArgument for another name.
[[nodiscard]] std::unique_ptr<DeviceAllocator> make_allocator(std::string_view backend,
                                                              AllocConfig config);

}  // namespace gantry::memory
