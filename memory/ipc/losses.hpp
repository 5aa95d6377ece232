// Exporters that ended before the work that importers of their memory waited for.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>

#include "core/process_stamp.hpp"
#include "device/fault_source.hpp"

namespace gantry::memory {

/// What one device has to be told: each process once, as PeerLostError of the device's next
/// synchronizing call.
///
/// Thread safety: every member may be called from any thread.
class IpcLosses final : public FaultSource {
 public:
  /// The losses of `device`, an index that was checked.
  [[nodiscard]] static IpcLosses& of(int device);

  /// `process` is gone, and what was imported from it may lack what its last work was to write.
  void add(const ProcessStamp& process);

  [[nodiscard]] int fault_device() const noexcept override { return device_; }
  [[nodiscard]] bool has_fault() const noexcept override {
    return has_fault_.load(std::memory_order_acquire);
  }
  void raise_fault() override;

 private:
  explicit IpcLosses(int device) : device_(device) {}

  const int device_;
  std::atomic<bool> has_fault_{false};
  std::mutex mutex_;
  std::deque<ProcessStamp> lost_;  ///< yet to be raised, oldest first
};

}  // namespace gantry::memory
