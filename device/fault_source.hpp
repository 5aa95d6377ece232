// Faults of device work that the driver knows nothing about.
#pragma once

namespace gantry {

/// Somebody whose kernels can end without a result, and who then wants the next synchronizing call
/// of their device to throw.
class FaultSource {
 public:
  virtual ~FaultSource() = default;
  /// The device that the faults are of.
  [[nodiscard]] virtual int fault_device() const noexcept = 0;
  /// True if there is a fault to raise. Cheap; called by any thread.
  [[nodiscard]] virtual bool has_fault() const noexcept = 0;
  /// Throws the oldest fault, if there still is one, and forgets it.
  virtual void raise_fault() = 0;
};

/// Asks `source` from now on; it lives until it is removed.
void add_fault_source(FaultSource& source);
/// Waits until nobody asks `source` any more.
void remove_fault_source(FaultSource& source) noexcept;

/// Throws a fault of `device` if any source has one; for drivers, behind their own faults.
void raise_source_faults(int device);
/// True if any source has a fault of any device.
[[nodiscard]] bool any_source_fault() noexcept;

}  // namespace gantry
