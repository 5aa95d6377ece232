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
#include "device/sim/devices/sim_schedule.hpp"
#include "device/sim/memory/sim_memory.hpp"
#include "device/sim/memory/sim_pool.hpp"
#include "device/sim/sim_capture.hpp"
#include "device/sim/sim_event.hpp"

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

  Platform platform() const noexcept override { return Platform::simulated; }
  int device_count() override { return static_cast<int>(devices_.size()); }
  DeviceProperties properties(int device) override;
  NativeMemoryInfo memory_info(int device) override;
  int current_device() override;
  void set_device(int device) override;
  void restore_device(int device) noexcept override;
  void synchronize_device(int device) override;
  FaultRecord* fault_record(int device) override;

  void* allocate(int device, std::size_t bytes) override;
  void deallocate(int device, void* data) override;
  void* allocate_pinned(std::size_t bytes) override;
  void deallocate_pinned(void* data) override;
  bool register_host(void* data, std::size_t bytes) override;
  void unregister_host(void* data) override;
  PointerInfo pointer_info(const void* data) override;

  bool supports_memory_pools(int device) override;
  void* allocate_async(NativeStream stream, std::size_t bytes) override;
  void deallocate_async(void* data, NativeStream stream) override;
  void trim_pool(int device, std::size_t bytes_to_keep) override;
  NativePoolMemory pool_memory(int device) override;
  void reset_pool_peaks(int device) override;

  bool supports_virtual_memory(int device) override;
  std::size_t chunk_granularity(int device) override;
  void* reserve_address(std::size_t bytes, std::size_t alignment) override;
  void free_address(void* address, std::size_t bytes) override;
  NativeChunk create_chunk(int device, std::size_t bytes) override;
  void release_chunk(NativeChunk chunk) override;
  void map_chunk(void* address, std::size_t bytes, NativeChunk chunk) override;
  void unmap(void* address, std::size_t bytes) override;
  void set_access(void* address, std::size_t bytes, std::span<const int> devices) override;
  UniqueFd export_chunk(NativeChunk chunk) override;
  NativeChunk import_chunk(int device, int descriptor, std::size_t bytes) override;

  void copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) override;
  void copy_peer(void* dst, int dst_device, const void* src, int src_device, std::size_t bytes,
                 NativeStream stream) override;
  void copy_batch(std::span<const CopyRegion> runs, NativeStream stream) override;
  void fill(void* dst, std::uint8_t value, std::size_t bytes, NativeStream stream) override;

  PriorityRange priority_range(int device) override;
  NativeStream create_stream(int device, int priority) override;
  void destroy_stream(NativeStream stream) noexcept override;
  std::uint64_t stream_identity(NativeStream stream) override;
  bool query_stream(NativeStream stream) override;
  void synchronize_stream(NativeStream stream) override;
  void wait_event(NativeStream stream, NativeEvent event) override;
  void wait_for_word(NativeStream stream, const std::uint32_t* word, std::uint32_t value) override;
  void launch_host_function(NativeStream stream, void (*function)(void*), void* data) override;

  NativeEvent create_event(int device, NativeEventFlags flags) override;
  void destroy_event(NativeEvent event) noexcept override;
  void record_event(NativeEvent event, NativeStream stream) override;
  bool query_event(NativeEvent event) override;
  bool event_reached(NativeEvent event) noexcept override;
  void synchronize_event(NativeEvent event) override;
  float elapsed_ms(NativeEvent begin, NativeEvent end) override;

  bool can_access_peer(int from, int to) override;
  void enable_peer_access(int from, int to) override;
  bool has_peer_atomics(int from, int to) override { return can_access_peer(from, to); }

  NativeMemoryHandle export_memory(void* base) override;
  void* open_memory(int device, const NativeMemoryHandle& handle) override;
  void close_memory(void* base) override;
  NativeEventHandle export_event(NativeEvent event) override;
  NativeEvent open_event(int device, const NativeEventHandle& handle) override;

  void begin_capture(NativeStream stream, CaptureMode mode) override;
  NativeGraph end_capture(NativeStream stream) override;
  bool is_capturing(NativeStream stream) override;
  std::uint64_t capture_id(NativeStream stream) override;
  void retain_by_capture(NativeStream stream, void (*release)(void*), void* data) override;
  bool supports_conditions(int) override { return true; }
  void begin_condition(NativeStream stream, const NativeCondition& condition,
                       NativeStream body) override;
  void end_condition(NativeStream body) override;
  void abandon_condition(NativeStream body) noexcept override;
  int condition_depth(NativeStream stream) override;
  void launch_graph(NativeGraph graph, NativeStream stream) override;
  [[nodiscard]] bool update_graph(NativeGraph graph, NativeGraph source) override;
  void dump_graph(NativeGraph graph, const std::string& path) override;
  void destroy_graph(NativeGraph graph) noexcept override;

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
