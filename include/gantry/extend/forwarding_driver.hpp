// A driver that forwards to another driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <gantry/extend/driver.hpp>

namespace gantry {

/// Forwards every call to another driver. A derived class overrides the calls that it changes. It
/// overrides before_call() to count, trace or refuse all calls.
///
///   class Tracer : public ForwardingDriver {
///     using ForwardingDriver::ForwardingDriver;
///     void before_call(const char* call) override { std::puts(call); }
///   };
///
/// Thread safety: that of the driver behind it.
class ForwardingDriver : public Driver {
 public:
  /// Forwards to `wrapped`, which must outlive this driver.
  explicit ForwardingDriver(Driver& wrapped) : wrapped_(wrapped) {}
  ForwardingDriver(const ForwardingDriver&) = delete;
  ForwardingDriver& operator=(const ForwardingDriver&) = delete;

  [[nodiscard]] Platform platform() const noexcept override { return wrapped_.platform(); }
  [[nodiscard]] int device_count() override {
    before_call("device_count");
    return wrapped_.device_count();
  }
  [[nodiscard]] DeviceProperties properties(int device) override {
    before_call("properties");
    return wrapped_.properties(device);
  }
  [[nodiscard]] NativeMemoryInfo memory_info(int device) override {
    before_call("memory_info");
    return wrapped_.memory_info(device);
  }
  [[nodiscard]] int current_device() override {
    before_call("current_device");
    return wrapped_.current_device();
  }
  void set_device(int device) override {
    before_call("set_device");
    wrapped_.set_device(device);
  }
  void restore_device(int device) noexcept override {
    before_noexcept_call("restore_device");
    wrapped_.restore_device(device);
  }
  void synchronize_device(int device) override {
    before_call("synchronize_device");
    wrapped_.synchronize_device(device);
  }
  [[nodiscard]] FaultRecord* fault_record(int device) override {
    before_call("fault_record");
    return wrapped_.fault_record(device);
  }

  [[nodiscard]] void* allocate(int device, std::size_t bytes) override {
    before_call("allocate");
    return wrapped_.allocate(device, bytes);
  }
  void deallocate(int device, void* data) override {
    before_call("deallocate");
    wrapped_.deallocate(device, data);
  }
  [[nodiscard]] void* allocate_pinned(std::size_t bytes) override {
    before_call("allocate_pinned");
    return wrapped_.allocate_pinned(bytes);
  }
  void deallocate_pinned(void* data) override {
    before_call("deallocate_pinned");
    wrapped_.deallocate_pinned(data);
  }
  [[nodiscard]] bool register_host(void* data, std::size_t bytes) override {
    before_call("register_host");
    return wrapped_.register_host(data, bytes);
  }
  void unregister_host(void* data) override {
    before_call("unregister_host");
    wrapped_.unregister_host(data);
  }
  [[nodiscard]] PointerInfo pointer_info(const void* data) override {
    before_call("pointer_info");
    return wrapped_.pointer_info(data);
  }

  [[nodiscard]] bool supports_memory_pools(int device) override {
    before_call("supports_memory_pools");
    return wrapped_.supports_memory_pools(device);
  }
  [[nodiscard]] void* allocate_async(NativeStream stream, std::size_t bytes) override {
    before_call("allocate_async");
    return wrapped_.allocate_async(stream, bytes);
  }
  void deallocate_async(void* data, NativeStream stream) override {
    before_call("deallocate_async");
    wrapped_.deallocate_async(data, stream);
  }
  void trim_pool(int device, std::size_t bytes_to_keep) override {
    before_call("trim_pool");
    wrapped_.trim_pool(device, bytes_to_keep);
  }
  [[nodiscard]] NativePoolMemory pool_memory(int device) override {
    before_call("pool_memory");
    return wrapped_.pool_memory(device);
  }
  void reset_pool_peaks(int device) override {
    before_call("reset_pool_peaks");
    wrapped_.reset_pool_peaks(device);
  }

  [[nodiscard]] bool supports_virtual_memory(int device) override {
    before_call("supports_virtual_memory");
    return wrapped_.supports_virtual_memory(device);
  }
  [[nodiscard]] std::size_t chunk_granularity(int device) override {
    before_call("chunk_granularity");
    return wrapped_.chunk_granularity(device);
  }
  [[nodiscard]] void* reserve_address(std::size_t bytes, std::size_t alignment) override {
    before_call("reserve_address");
    return wrapped_.reserve_address(bytes, alignment);
  }
  void free_address(void* address, std::size_t bytes) override {
    before_call("free_address");
    wrapped_.free_address(address, bytes);
  }
  [[nodiscard]] NativeChunk create_chunk(int device, std::size_t bytes) override {
    before_call("create_chunk");
    return wrapped_.create_chunk(device, bytes);
  }
  void release_chunk(NativeChunk chunk) override {
    before_call("release_chunk");
    wrapped_.release_chunk(chunk);
  }
  void map_chunk(void* address, std::size_t bytes, NativeChunk chunk) override {
    before_call("map_chunk");
    wrapped_.map_chunk(address, bytes, chunk);
  }
  void unmap(void* address, std::size_t bytes) override {
    before_call("unmap");
    wrapped_.unmap(address, bytes);
  }
  void set_access(void* address, std::size_t bytes, std::span<const int> devices) override {
    before_call("set_access");
    wrapped_.set_access(address, bytes, devices);
  }
  [[nodiscard]] UniqueFd export_chunk(NativeChunk chunk) override {
    before_call("export_chunk");
    return wrapped_.export_chunk(chunk);
  }
  [[nodiscard]] NativeChunk import_chunk(int device, int descriptor, std::size_t bytes) override {
    before_call("import_chunk");
    return wrapped_.import_chunk(device, descriptor, bytes);
  }

  void copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) override {
    before_call("copy");
    wrapped_.copy(dst, src, bytes, stream);
  }
  void copy_peer(void* dst, int dst_device, const void* src, int src_device, std::size_t bytes,
                 NativeStream stream) override {
    before_call("copy_peer");
    wrapped_.copy_peer(dst, dst_device, src, src_device, bytes, stream);
  }
  void copy_batch(std::span<const CopyRegion> runs, NativeStream stream) override {
    before_call("copy_batch");
    wrapped_.copy_batch(runs, stream);
  }
  void fill(void* dst, std::uint8_t value, std::size_t bytes, NativeStream stream) override {
    before_call("fill");
    wrapped_.fill(dst, value, bytes, stream);
  }

  [[nodiscard]] PriorityRange priority_range(int device) override {
    before_call("priority_range");
    return wrapped_.priority_range(device);
  }
  [[nodiscard]] NativeStream create_stream(int device, int priority) override {
    before_call("create_stream");
    return wrapped_.create_stream(device, priority);
  }
  void destroy_stream(NativeStream stream) noexcept override {
    before_noexcept_call("destroy_stream");
    wrapped_.destroy_stream(stream);
  }
  [[nodiscard]] std::uint64_t stream_identity(NativeStream stream) override {
    before_call("stream_identity");
    return wrapped_.stream_identity(stream);
  }
  [[nodiscard]] bool query_stream(NativeStream stream) override {
    before_call("query_stream");
    return wrapped_.query_stream(stream);
  }
  void synchronize_stream(NativeStream stream) override {
    before_call("synchronize_stream");
    wrapped_.synchronize_stream(stream);
  }
  void wait_event(NativeStream stream, NativeEvent event) override {
    before_call("wait_event");
    wrapped_.wait_event(stream, event);
  }
  void wait_for_word(NativeStream stream, const std::uint32_t* word, std::uint32_t value) override {
    before_call("wait_for_word");
    wrapped_.wait_for_word(stream, word, value);
  }
  void launch_host_function(NativeStream stream, void (*function)(void*), void* data) override {
    before_call("launch_host_function");
    wrapped_.launch_host_function(stream, function, data);
  }

  [[nodiscard]] NativeEvent create_event(int device, NativeEventFlags flags) override {
    before_call("create_event");
    return wrapped_.create_event(device, flags);
  }
  void destroy_event(NativeEvent event) noexcept override {
    before_noexcept_call("destroy_event");
    wrapped_.destroy_event(event);
  }
  void record_event(NativeEvent event, NativeStream stream) override {
    before_call("record_event");
    wrapped_.record_event(event, stream);
  }
  [[nodiscard]] bool query_event(NativeEvent event) override {
    before_call("query_event");
    return wrapped_.query_event(event);
  }
  [[nodiscard]] bool event_reached(NativeEvent event) noexcept override {
    before_noexcept_call("event_reached");
    return wrapped_.event_reached(event);
  }
  void synchronize_event(NativeEvent event) override {
    before_call("synchronize_event");
    wrapped_.synchronize_event(event);
  }
  [[nodiscard]] float elapsed_ms(NativeEvent begin, NativeEvent end) override {
    before_call("elapsed_ms");
    return wrapped_.elapsed_ms(begin, end);
  }

  [[nodiscard]] bool can_access_peer(int from, int to) override {
    before_call("can_access_peer");
    return wrapped_.can_access_peer(from, to);
  }
  void enable_peer_access(int from, int to) override {
    before_call("enable_peer_access");
    wrapped_.enable_peer_access(from, to);
  }
  [[nodiscard]] bool has_peer_atomics(int from, int to) override {
    before_call("has_peer_atomics");
    return wrapped_.has_peer_atomics(from, to);
  }

  [[nodiscard]] NativeMemoryHandle export_memory(void* base) override {
    before_call("export_memory");
    return wrapped_.export_memory(base);
  }
  [[nodiscard]] void* open_memory(int device, const NativeMemoryHandle& handle) override {
    before_call("open_memory");
    return wrapped_.open_memory(device, handle);
  }
  void close_memory(void* base) override {
    before_call("close_memory");
    wrapped_.close_memory(base);
  }
  [[nodiscard]] NativeEventHandle export_event(NativeEvent event) override {
    before_call("export_event");
    return wrapped_.export_event(event);
  }
  [[nodiscard]] NativeEvent open_event(int device, const NativeEventHandle& handle) override {
    before_call("open_event");
    return wrapped_.open_event(device, handle);
  }

  void begin_capture(NativeStream stream, CaptureMode mode) override {
    before_call("begin_capture");
    wrapped_.begin_capture(stream, mode);
  }
  [[nodiscard]] NativeGraph end_capture(NativeStream stream) override {
    before_call("end_capture");
    return wrapped_.end_capture(stream);
  }
  [[nodiscard]] bool is_capturing(NativeStream stream) override {
    before_call("is_capturing");
    return wrapped_.is_capturing(stream);
  }
  [[nodiscard]] std::uint64_t capture_id(NativeStream stream) override {
    before_call("capture_id");
    return wrapped_.capture_id(stream);
  }
  void retain_by_capture(NativeStream stream, void (*release)(void*), void* data) override {
    try {
      before_call("retain_by_capture");
    } catch (...) {
      release(data);  // also if the call is refused
      throw;
    }
    wrapped_.retain_by_capture(stream, release, data);
  }
  [[nodiscard]] bool supports_conditions(int device) override {
    before_call("supports_conditions");
    return wrapped_.supports_conditions(device);
  }
  void begin_condition(NativeStream stream, const NativeCondition& condition,
                       NativeStream body) override {
    before_call("begin_condition");
    wrapped_.begin_condition(stream, condition, body);
  }
  void end_condition(NativeStream body) override {
    before_call("end_condition");
    wrapped_.end_condition(body);
  }
  void abandon_condition(NativeStream body) noexcept override {
    before_noexcept_call("abandon_condition");
    wrapped_.abandon_condition(body);
  }
  [[nodiscard]] int condition_depth(NativeStream stream) override {
    before_call("condition_depth");
    return wrapped_.condition_depth(stream);
  }
  void launch_graph(NativeGraph graph, NativeStream stream) override {
    before_call("launch_graph");
    wrapped_.launch_graph(graph, stream);
  }
  [[nodiscard]] bool update_graph(NativeGraph graph, NativeGraph source) override {
    before_call("update_graph");
    return wrapped_.update_graph(graph, source);
  }
  void dump_graph(NativeGraph graph, const std::string& path) override {
    before_call("dump_graph");
    wrapped_.dump_graph(graph, path);
  }
  void destroy_graph(NativeGraph graph) noexcept override {
    before_noexcept_call("destroy_graph");
    wrapped_.destroy_graph(graph);
  }

 protected:
  /// Runs before a call is forwarded. `call` is the name of the member function, a string literal.
  /// If it throws, the call is not forwarded. platform() does not call it.
  virtual void before_call(const char* call) { static_cast<void>(call); }
  /// The same for the calls that are noexcept.
  virtual void before_noexcept_call(const char* call) noexcept { static_cast<void>(call); }

  /// The driver behind this one.
  [[nodiscard]] Driver& wrapped() const noexcept { return wrapped_; }

 private:
  Driver& wrapped_;
};

}  // namespace gantry
