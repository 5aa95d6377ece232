// Exporters that ended before the work that importers of their memory wait for.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>

#include "core/process_stamp.hpp"
#include "device/fault_source.hpp"

namespace gantry::memory {

/// The exporters that a device lost. The device's next synchronizing call throws PeerLostError,
/// once for each process.
///
/// Thread safety: every member may be called from any thread.
class PeerFaults final : public FaultSource {
 public:
  /// The faults of `device`, a checked index.
  [[nodiscard]] static PeerFaults& of(int device);

  /// Adds `process`, which ended before its pending writes to imported memory completed.
  void add(const ProcessStamp& process);

  [[nodiscard]] int fault_device() const noexcept override { return device_; }
  [[nodiscard]] bool has_fault() const noexcept override {
    return has_fault_.load(std::memory_order_acquire);
  }
  void raise_fault() override;

 private:
  explicit PeerFaults(int device) : device_(device) {}

  const int device_;
  std::atomic<bool> has_fault_{false};
  std::mutex mutex_;
  std::deque<ProcessStamp> unraised_;  ///< oldest first
};

}  // namespace gantry::memory
