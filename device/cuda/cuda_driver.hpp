#pragma once

#include <gantry/extend/driver.hpp>

namespace gantry {

/// The Driver of real GPUs. Its functions are spread over the files of this folder by noun.
class CudaDriver final : public Driver {
 public:
  explicit CudaDriver(int device_count) : device_count_(device_count) {}

  // cuda_device.cpp
  [[nodiscard]] Platform platform() const noexcept override { return Platform::cuda; }
  [[nodiscard]] int device_count() override { return device_count_; }
  [[nodiscard]] DeviceProperties properties(int device) override;
  [[nodiscard]] NativeMemoryInfo memory_info(int device) override;
  [[nodiscard]] int current_device() override;
  void set_device(int device) override;
  void restore_device(int device) noexcept override;
  void synchronize_device(int device) override;
  [[nodiscard]] bool can_access_peer(int from, int to) override;
  void enable_peer_access(int from, int to) override;
  [[nodiscard]] bool has_peer_atomics(int from, int to) override;

  // cuda_fault.cpp
  [[nodiscard]] FaultRecord* fault_record(int device) override;

  // cuda_memory.cpp
  [[nodiscard]] void* allocate(int device, std::size_t bytes) override;
  void deallocate(int device, void* data) override;
  [[nodiscard]] void* allocate_pinned(std::size_t bytes) override;
  void deallocate_pinned(void* data) override;
  [[nodiscard]] bool register_host(void* data, std::size_t bytes) override;
  void unregister_host(void* data) override;
  [[nodiscard]] PointerInfo pointer_info(const void* data) override;

  // cuda_pool.cpp
  [[nodiscard]] bool supports_memory_pools(int device) override;
  [[nodiscard]] void* allocate_async(NativeStream stream, std::size_t bytes) override;
  void deallocate_async(void* data, NativeStream stream) override;
  void trim_pool(int device, std::size_t bytes_to_keep) override;
  [[nodiscard]] NativePoolMemory pool_memory(int device) override;
  void reset_pool_peaks(int device) override;

  // cuda_vmm.cpp
  [[nodiscard]] bool supports_virtual_memory(int device) override;
  [[nodiscard]] std::size_t chunk_granularity(int device) override;
  [[nodiscard]] void* reserve_address(std::size_t bytes, std::size_t alignment) override;
  void free_address(void* address, std::size_t bytes) override;
  [[nodiscard]] NativeChunk create_chunk(int device, std::size_t bytes) override;
  void release_chunk(NativeChunk chunk) override;
  void map_chunk(void* address, std::size_t bytes, NativeChunk chunk) override;
  void unmap(void* address, std::size_t bytes) override;
  void set_access(void* address, std::size_t bytes, std::span<const int> devices) override;
  [[nodiscard]] UniqueFd export_chunk(NativeChunk chunk) override;
  [[nodiscard]] NativeChunk import_chunk(int device, int descriptor, std::size_t bytes) override;

  // cuda_copy.cpp
  void copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) override;
  void copy_peer(void* dst, int dst_device, const void* src, int src_device, std::size_t bytes,
                 NativeStream stream) override;
  void copy_batch(std::span<const CopyRegion> runs, NativeStream stream) override;
  void fill(void* dst, std::uint8_t value, std::size_t bytes, NativeStream stream) override;

  // cuda_stream.cpp
  [[nodiscard]] PriorityRange priority_range(int device) override;
  [[nodiscard]] NativeStream create_stream(int device, int priority) override;
  void destroy_stream(NativeStream stream) noexcept override;
  [[nodiscard]] std::uint64_t stream_identity(NativeStream stream) override;
  [[nodiscard]] bool query_stream(NativeStream stream) override;
  void synchronize_stream(NativeStream stream) override;
  void wait_event(NativeStream stream, NativeEvent event) override;
  void wait_for_word(NativeStream stream, const std::uint32_t* word, std::uint32_t value) override;
  void launch_host_function(NativeStream stream, void (*function)(void*), void* data) override;

  // cuda_event.cpp
  [[nodiscard]] NativeEvent create_event(int device, NativeEventFlags flags) override;
  void destroy_event(NativeEvent event) noexcept override;
  void record_event(NativeEvent event, NativeStream stream) override;
  [[nodiscard]] bool query_event(NativeEvent event) override;
  [[nodiscard]] bool event_reached(NativeEvent event) noexcept override;
  void synchronize_event(NativeEvent event) override;
  [[nodiscard]] float elapsed_ms(NativeEvent begin, NativeEvent end) override;

  // cuda_ipc.cpp
  [[nodiscard]] NativeMemoryHandle export_memory(void* base) override;
  [[nodiscard]] void* open_memory(int device, const NativeMemoryHandle& handle) override;
  void close_memory(void* base) override;
  [[nodiscard]] NativeEventHandle export_event(NativeEvent event) override;
  [[nodiscard]] NativeEvent open_event(int device, const NativeEventHandle& handle) override;

  // cuda_capture.cpp
  void begin_capture(NativeStream stream, CaptureMode mode) override;
  [[nodiscard]] NativeGraph end_capture(NativeStream stream) override;
  [[nodiscard]] bool is_capturing(NativeStream stream) override;
  [[nodiscard]] std::uint64_t capture_id(NativeStream stream) override;
  void retain_by_capture(NativeStream stream, void (*release)(void*), void* data) override;
  void launch_graph(NativeGraph graph, NativeStream stream) override;
  [[nodiscard]] bool update_graph(NativeGraph graph, NativeGraph source) override;
  void dump_graph(NativeGraph graph, const std::string& path) override;
  void destroy_graph(NativeGraph graph) noexcept override;

  // conditions/cuda_condition.cpp
  [[nodiscard]] bool supports_conditions(int device) override;
  void begin_condition(NativeStream stream, const NativeCondition& condition,
                       NativeStream body) override;
  void end_condition(NativeStream body) override;
  void abandon_condition(NativeStream body) noexcept override;
  [[nodiscard]] int condition_depth(NativeStream stream) override;

 private:
  const int device_count_;
};

}  // namespace gantry
