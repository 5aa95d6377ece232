// Faults of device work that the driver knows nothing about.
#pragma once

namespace gantry {

/// A source of kernels that can end without a result. The next synchronizing call of their device
/// then throws.
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
/// Waits until no thread asks `source` any more.
void remove_fault_source(FaultSource& source) noexcept;

/// Throws a fault of `device` if any source has one; for drivers, behind their own faults.
void raise_source_faults(int device);
/// True if any source has a fault of any device.
[[nodiscard]] bool any_source_fault() noexcept;

}  // namespace gantry
