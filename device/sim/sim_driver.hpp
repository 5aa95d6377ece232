// The driver of simulated devices.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/extend/driver.hpp>

#include "device/drivers/sim_platform.hpp"
#include "device/sim/devices/sim_device.hpp"
#include "device/sim/memory/sim_memory.hpp"
#include "device/sim/memory/sim_pool.hpp"
#include "device/sim/sim_capture.hpp"
#include "device/sim/sim_event.hpp"
#include "device/sim/streams/sim_schedule.hpp"

namespace gantry::sim {

/// Note [Simulated machine]
/// A stream is a thread, an event the number of a task, device memory a memfd, and a kernel a
/// function that runs on its stream's thread. Host calls first reject everything that hardware
/// would reject, then enqueue a task. docs/explanation/simulator.md lists the similarities to CUDA
/// and the differences.
class SimDriver final : public Driver {
 public:
  explicit SimDriver(const std::vector<int>& visible);
  ~SimDriver() override;

  /// The driver that was made last; kernels are launched on it. Throws: NotSupported without one.
  [[nodiscard]] static SimDriver& active();

  /// For tests: a machine whose devices do not all reach each other.
  [[nodiscard]] PeerTable& peers() { return peers_; }
  /// The order of tasks, or nullptr without GANTRY_SIM_SCHEDULE.
  [[nodiscard]] Schedule* schedule() { return schedule_.get(); }

  void launch(NativeStream stream, Task task, KernelWaits waits);
  void check_device_access(int device, const void* data, std::size_t bytes);
  /// As is_sim_stream_idle().
  [[nodiscard]] static bool is_idle(NativeStream stream) noexcept;

  [[nodiscard]] Platform platform() const noexcept override { return Platform::simulated; }
#include "device/drivers/override_driver_calls.inc"

 private:
  /// Throws: CudaError 101 if there is no such device, 800 on a stream's thread.
  SimDevice& device_of(int device, std::string_view doing) const;
  /// Throws: as device_of; CudaError 400 if there is no such stream.
  SimStream& stream_of(NativeStream stream, std::string_view doing) const;
  SimEvent& event_of(NativeEvent event, std::string_view doing) const;
  SimGraph& graph_of(NativeGraph graph, std::string_view doing) const;

  /// Enqueues or captures.
  void submit(SimStream& stream, Task task, SimStream::Options options = {});
  /// Enqueues and waits, or captures; rethrows the stream's error.
  void submit_blocking(SimStream& stream, Task task);
  /// Waits for a task that was submitted with a mark; rethrows the stream's error.
  void finish(SimStream& stream, std::uint64_t ticket);
  /// Whether a launch on `stream` waits for its end. Note [Launch blocking]
  [[nodiscard]] bool launch_blocks(const SimStream& stream, KernelWaits waits) const;
  void transfer(void* dst, const void* src, std::size_t bytes, SimStream& stream,
                const std::string& doing);
  static std::uint64_t submit_record(SimEvent& event, SimStream& stream);
  static std::uint64_t submit_wait(SimEvent& event, SimStream& stream);
  EventRecord record_of(SimEvent& event, const std::string& doing);
  NativeEvent make_event(int device, NativeEventFlags flags, std::shared_ptr<SharedEvent> shared);

  /// Other processes may wait for tasks of this one from now on.
  void share() {
    if (schedule_ != nullptr) schedule_->share();
  }

  std::unique_ptr<Schedule> schedule_;
  std::vector<std::unique_ptr<SimDevice>> devices_;
  PeerTable peers_;
  std::unique_ptr<AddressSpace> memory_;
  std::vector<std::unique_ptr<MemoryPool>> pools_;
  EventTable events_;
  CaptureTable captures_;
  const bool launch_blocking_;           ///< Note [Launch blocking]
  const std::size_t stream_bytes_;       ///< of the device's memory, for each created stream
  std::atomic<bool> is_closing_{false};  ///< ends the waits for words
};

}  // namespace gantry::sim
