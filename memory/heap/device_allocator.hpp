// The interface of the built-in allocators of device memory.
#pragma once

#include <gantry/memory/allocator.hpp>
#include <gantry/memory/stats.hpp>

namespace gantry::memory {

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

}  // namespace gantry::memory
