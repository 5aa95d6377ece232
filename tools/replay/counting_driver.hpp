// A Driver that counts what is asked of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include <gantry/extend/driver.hpp>

namespace gantry::replay {

/// Takes the place of the process's driver while it lives, counts the calls and the device memory
/// that is held through them, and passes every call on.
///
/// Make and destroy it only while no device work is in flight. Thread safety: all members.
class CountingDriver : public Driver {
 public:
  CountingDriver() : wrapped_(*exchange_driver(this)) {}
  ~CountingDriver() override { exchange_driver(&wrapped_); }
  CountingDriver(const CountingDriver&) = delete;
  CountingDriver& operator=(const CountingDriver&) = delete;

  /// How many calls were made so far.
  [[nodiscard]] std::uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  /// Bytes of device memory that allocate and create_chunk gave and nobody returned.
  [[nodiscard]] std::uint64_t held_bytes() const { return held_.load(std::memory_order_relaxed); }
  /// The largest held_bytes() since the last reset_peak.
  [[nodiscard]] std::uint64_t peak_held_bytes() const {
    return peak_.load(std::memory_order_relaxed);
  }
  void reset_peak() { peak_.store(held_bytes(), std::memory_order_relaxed); }

  [[nodiscard]] Platform platform() const noexcept override { return wrapped_.platform(); }
  int device_count() override {
    count();
    return wrapped_.device_count();
  }
  DeviceProperties properties(int device) override {
    count();
    return wrapped_.properties(device);
  }
  NativeMemoryInfo memory_info(int device) override {
    count();
    return wrapped_.memory_info(device);
  }
  int current_device() override {
    count();
    return wrapped_.current_device();
  }
  void set_device(int device) override {
    count();
    wrapped_.set_device(device);
  }
  void restore_device(int device) noexcept override {
    count();
    wrapped_.restore_device(device);
  }
  void synchronize_device(int device) override {
    count();
    wrapped_.synchronize_device(device);
  }
  FaultRecord* fault_record(int device) override {
    count();
    return wrapped_.fault_record(device);
  }

  void* allocate(int device, std::size_t bytes) override {
    count();
    void* data = wrapped_.allocate(device, bytes);
    if (data != nullptr) hold(reinterpret_cast<std::uintptr_t>(data), bytes, allocations_);
    return data;
  }
  void deallocate(int device, void* data) override {
    count();
    wrapped_.deallocate(device, data);
    drop(reinterpret_cast<std::uintptr_t>(data), allocations_);
  }
  void* allocate_pinned(std::size_t bytes) override {
    count();
    return wrapped_.allocate_pinned(bytes);
  }
  void deallocate_pinned(void* data) override {
    count();
    wrapped_.deallocate_pinned(data);
  }
  bool register_host(void* data, std::size_t bytes) override {
    count();
    return wrapped_.register_host(data, bytes);
  }
  void unregister_host(void* data) override {
    count();
    wrapped_.unregister_host(data);
  }
  PointerInfo pointer_info(const void* data) override {
    count();
    return wrapped_.pointer_info(data);
  }

  bool supports_memory_pools(int device) override {
    count();
    return wrapped_.supports_memory_pools(device);
  }
  void* allocate_async(NativeStream stream, std::size_t bytes) override {
    count();
    return wrapped_.allocate_async(stream, bytes);
  }
  void deallocate_async(void* data, NativeStream stream) override {
    count();
    wrapped_.deallocate_async(data, stream);
  }
  void trim_pool(int device, std::size_t bytes_to_keep) override {
    count();
    wrapped_.trim_pool(device, bytes_to_keep);
  }
  NativePoolMemory pool_memory(int device) override {
    count();
    return wrapped_.pool_memory(device);
  }
  void reset_pool_peaks(int device) override {
    count();
    wrapped_.reset_pool_peaks(device);
  }

  bool supports_virtual_memory(int device) override {
    count();
    return wrapped_.supports_virtual_memory(device);
  }
  std::size_t chunk_granularity(int device) override {
    count();
    return wrapped_.chunk_granularity(device);
  }
  void* reserve_address(std::size_t bytes, std::size_t alignment) override {
    count();
    return wrapped_.reserve_address(bytes, alignment);
  }
  void free_address(void* address, std::size_t bytes) override {
    count();
    wrapped_.free_address(address, bytes);
  }
  NativeChunk create_chunk(int device, std::size_t bytes) override {
    count();
    const NativeChunk chunk = wrapped_.create_chunk(device, bytes);
    if (chunk != NativeChunk::none) hold(static_cast<std::uint64_t>(chunk), bytes, chunks_);
    return chunk;
  }
  void release_chunk(NativeChunk chunk) override {
    count();
    wrapped_.release_chunk(chunk);
    drop(static_cast<std::uint64_t>(chunk), chunks_);
  }
  void map_chunk(void* address, std::size_t bytes, NativeChunk chunk) override {
    count();
    wrapped_.map_chunk(address, bytes, chunk);
  }
  void unmap(void* address, std::size_t bytes) override {
    count();
    wrapped_.unmap(address, bytes);
  }
  void set_access(void* address, std::size_t bytes, std::span<const int> devices) override {
    count();
    wrapped_.set_access(address, bytes, devices);
  }
  UniqueFd export_chunk(NativeChunk chunk) override {
    count();
    return wrapped_.export_chunk(chunk);
  }
  NativeChunk import_chunk(int device, int descriptor, std::size_t bytes) override {
    count();
    return wrapped_.import_chunk(device, descriptor, bytes);
  }

  void copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) override {
    count();
    wrapped_.copy(dst, src, bytes, stream);
  }
  void copy_peer(void* dst, int dst_device, const void* src, int src_device, std::size_t bytes,
                 NativeStream stream) override {
    count();
    wrapped_.copy_peer(dst, dst_device, src, src_device, bytes, stream);
  }
  void copy_batch(std::span<const CopyRegion> runs, NativeStream stream) override {
    count();
    wrapped_.copy_batch(runs, stream);
  }
  void fill(void* dst, std::uint8_t value, std::size_t bytes, NativeStream stream) override {
    count();
    wrapped_.fill(dst, value, bytes, stream);
  }

  PriorityRange priority_range(int device) override {
    count();
    return wrapped_.priority_range(device);
  }
  NativeStream create_stream(int device, int priority) override {
    count();
    return wrapped_.create_stream(device, priority);
  }
  void destroy_stream(NativeStream stream) noexcept override {
    count();
    wrapped_.destroy_stream(stream);
  }
  std::uint64_t stream_identity(NativeStream stream) override {
    count();
    return wrapped_.stream_identity(stream);
  }
  bool query_stream(NativeStream stream) override {
    count();
    return wrapped_.query_stream(stream);
  }
  void synchronize_stream(NativeStream stream) override {
    count();
    wrapped_.synchronize_stream(stream);
  }
  void wait_event(NativeStream stream, NativeEvent event) override {
    count();
    wrapped_.wait_event(stream, event);
  }
  void wait_for_word(NativeStream stream, const std::uint32_t* word, std::uint32_t value) override {
    count();
    wrapped_.wait_for_word(stream, word, value);
  }
  void launch_host_function(NativeStream stream, void (*function)(void*), void* data) override {
    count();
    wrapped_.launch_host_function(stream, function, data);
  }

  NativeEvent create_event(int device, NativeEventFlags flags) override {
    count();
    return wrapped_.create_event(device, flags);
  }
  void destroy_event(NativeEvent event) noexcept override {
    count();
    wrapped_.destroy_event(event);
  }
  void record_event(NativeEvent event, NativeStream stream) override {
    count();
    wrapped_.record_event(event, stream);
  }
  bool query_event(NativeEvent event) override {
    count();
    return wrapped_.query_event(event);
  }
  bool event_reached(NativeEvent event) noexcept override {
    count();
    return wrapped_.event_reached(event);
  }
  void synchronize_event(NativeEvent event) override {
    count();
    wrapped_.synchronize_event(event);
  }
  float elapsed_ms(NativeEvent begin, NativeEvent end) override {
    count();
    return wrapped_.elapsed_ms(begin, end);
  }

  bool can_access_peer(int from, int to) override {
    count();
    return wrapped_.can_access_peer(from, to);
  }
  bool has_peer_atomics(int from, int to) override {
    count();
    return wrapped_.has_peer_atomics(from, to);
  }
  void enable_peer_access(int from, int to) override {
    count();
    wrapped_.enable_peer_access(from, to);
  }
  NativeMemoryHandle export_memory(void* base) override {
    count();
    return wrapped_.export_memory(base);
  }
  void* open_memory(int device, const NativeMemoryHandle& handle) override {
    count();
    return wrapped_.open_memory(device, handle);
  }
  void close_memory(void* base) override {
    count();
    wrapped_.close_memory(base);
  }
  NativeEventHandle export_event(NativeEvent event) override {
    count();
    return wrapped_.export_event(event);
  }
  NativeEvent open_event(int device, const NativeEventHandle& handle) override {
    count();
    return wrapped_.open_event(device, handle);
  }

  void begin_capture(NativeStream stream, CaptureMode mode) override {
    count();
    wrapped_.begin_capture(stream, mode);
  }
  NativeGraph end_capture(NativeStream stream) override {
    count();
    return wrapped_.end_capture(stream);
  }
  bool is_capturing(NativeStream stream) override {
    count();
    return wrapped_.is_capturing(stream);
  }
  std::uint64_t capture_id(NativeStream stream) override {
    count();
    return wrapped_.capture_id(stream);
  }
  void retain_by_capture(NativeStream stream, void (*release)(void*), void* data) override {
    count();
    wrapped_.retain_by_capture(stream, release, data);
  }
  void launch_graph(NativeGraph graph, NativeStream stream) override {
    count();
    wrapped_.launch_graph(graph, stream);
  }
  void destroy_graph(NativeGraph graph) noexcept override {
    count();
    wrapped_.destroy_graph(graph);
  }

 private:
  using Sizes = std::unordered_map<std::uint64_t, std::uint64_t>;

  void count() noexcept { calls_.fetch_add(1, std::memory_order_relaxed); }
  void hold(std::uint64_t key, std::uint64_t bytes, Sizes& sizes) {
    const std::lock_guard lock(mutex_);
    sizes[key] = bytes;
    const std::uint64_t held = held_.load(std::memory_order_relaxed) + bytes;
    held_.store(held, std::memory_order_relaxed);
    if (held > peak_.load(std::memory_order_relaxed)) peak_.store(held, std::memory_order_relaxed);
  }
  void drop(std::uint64_t key, Sizes& sizes) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes.find(key);
    if (found == sizes.end()) return;  // from before this driver
    held_.store(held_.load(std::memory_order_relaxed) - found->second, std::memory_order_relaxed);
    sizes.erase(found);
  }

  Driver& wrapped_;
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> held_{0};
  std::atomic<std::uint64_t> peak_{0};
  std::mutex mutex_;
  Sizes allocations_;
  Sizes chunks_;
};

}  // namespace gantry::replay
