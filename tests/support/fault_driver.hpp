// A Driver that counts the calls made to it and lets chosen ones fail.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

namespace gantry::testing {

/// How an injected call fails: CUDA's number and name.
struct Failure {
  int code;
  std::string_view name;
};
inline constexpr Failure kInvalidValue{1, "cudaErrorInvalidValue"};
inline constexpr Failure kOutOfMemory{2, "cudaErrorMemoryAllocation"};
inline constexpr Failure kInvalidHandle{400, "cudaErrorInvalidResourceHandle"};
inline constexpr Failure kIllegalAddress{700, "cudaErrorIllegalAddress"};
inline constexpr Failure kUnknown{999, "cudaErrorUnknown"};

/// Takes the place of the process's driver while it lives and passes every call on to it.
///
///   FaultDriver faults;
///   faults.fail_on("record_event", 2);  // the second one from now throws CudaError
///   ...
///   EXPECT_EQ(faults.calls("record_event"), 2);
///
/// Make and destroy it only while no device work is in flight. Thread safety: all members.
class FaultDriver : public Driver {
 public:
  FaultDriver() : wrapped_(*exchange_driver(this)) {}
  ~FaultDriver() override { exchange_driver(&wrapped_); }
  FaultDriver(const FaultDriver&) = delete;
  FaultDriver& operator=(const FaultDriver&) = delete;

  /// Lets the `nth` call of `call` from now on (1 is the next one) and the `times` - 1 after it
  /// fail with `failure`. The calls that allocate and register_host answer kOutOfMemory with
  /// nothing, as drivers do. Calls that are noexcept cannot fail.
  void fail_on(std::string_view call, std::uint64_t nth, Failure failure = kUnknown,
               std::uint64_t times = 1) {
    if (call.starts_with("destroy_") || call == "restore_device" || nth == 0) {
      throw std::invalid_argument("fail_on: this call cannot fail");
    }
    const std::lock_guard lock(mutex_);
    const std::uint64_t first = counts_[std::string(call)] + nth;
    plans_.insert_or_assign(std::string(call), Plan{first, first + times, failure});
  }
  /// Forgets all planned failures.
  void fail_nothing() {
    const std::lock_guard lock(mutex_);
    plans_.clear();
  }
  /// How often `call` was made since the start or reset_counts.
  [[nodiscard]] std::uint64_t calls(std::string_view call) const {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(std::string(call));
    return found == counts_.end() ? 0 : found->second;
  }
  /// How often any call was made.
  [[nodiscard]] std::uint64_t total_calls() const {
    const std::lock_guard lock(mutex_);
    std::uint64_t sum = 0;
    for (const auto& [name, count] : counts_) sum += count;
    return sum;
  }
  /// Every call made, with its count: for sweeps that let each of them fail once.
  [[nodiscard]] std::map<std::string, std::uint64_t> counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }
  /// Starts all counts at 0 and forgets planned failures.
  void reset_counts() {
    const std::lock_guard lock(mutex_);
    counts_.clear();
    plans_.clear();
  }

  [[nodiscard]] Platform platform() const noexcept override { return wrapped_.platform(); }
  int device_count() override {
    enter("device_count");
    return wrapped_.device_count();
  }
  DeviceProperties properties(int device) override {
    enter("properties");
    return wrapped_.properties(device);
  }
  NativeMemoryInfo memory_info(int device) override {
    enter("memory_info");
    return wrapped_.memory_info(device);
  }
  int current_device() override {
    enter("current_device");
    return wrapped_.current_device();
  }
  void set_device(int device) override {
    enter("set_device");
    wrapped_.set_device(device);
  }
  void restore_device(int device) noexcept override {
    count("restore_device");
    wrapped_.restore_device(device);
  }
  void synchronize_device(int device) override {
    enter("synchronize_device");
    wrapped_.synchronize_device(device);
  }
  FaultRecord* fault_record(int device) override {
    enter("fault_record");
    return wrapped_.fault_record(device);
  }

  void* allocate(int device, std::size_t bytes) override {
    if (is_out_of_memory("allocate")) return nullptr;
    return wrapped_.allocate(device, bytes);
  }
  void deallocate(int device, void* data) override {
    enter("deallocate");
    wrapped_.deallocate(device, data);
  }
  void* allocate_pinned(std::size_t bytes) override {
    if (is_out_of_memory("allocate_pinned")) return nullptr;
    return wrapped_.allocate_pinned(bytes);
  }
  void deallocate_pinned(void* data) override {
    enter("deallocate_pinned");
    wrapped_.deallocate_pinned(data);
  }
  bool register_host(void* data, std::size_t bytes) override {
    return !is_out_of_memory("register_host") && wrapped_.register_host(data, bytes);
  }
  void unregister_host(void* data) override {
    enter("unregister_host");
    wrapped_.unregister_host(data);
  }
  PointerInfo pointer_info(const void* data) override {
    enter("pointer_info");
    return wrapped_.pointer_info(data);
  }

  bool supports_memory_pools(int device) override {
    enter("supports_memory_pools");
    return wrapped_.supports_memory_pools(device);
  }
  void* allocate_async(NativeStream stream, std::size_t bytes) override {
    if (is_out_of_memory("allocate_async")) return nullptr;
    return wrapped_.allocate_async(stream, bytes);
  }
  void deallocate_async(void* data, NativeStream stream) override {
    enter("deallocate_async");
    wrapped_.deallocate_async(data, stream);
  }
  void trim_pool(int device, std::size_t bytes_to_keep) override {
    enter("trim_pool");
    wrapped_.trim_pool(device, bytes_to_keep);
  }
  NativePoolMemory pool_memory(int device) override {
    enter("pool_memory");
    return wrapped_.pool_memory(device);
  }
  void reset_pool_peaks(int device) override {
    enter("reset_pool_peaks");
    wrapped_.reset_pool_peaks(device);
  }

  bool supports_virtual_memory(int device) override {
    enter("supports_virtual_memory");
    return wrapped_.supports_virtual_memory(device);
  }
  std::size_t chunk_granularity(int device) override {
    enter("chunk_granularity");
    return wrapped_.chunk_granularity(device);
  }
  void* reserve_address(std::size_t bytes, std::size_t alignment) override {
    enter("reserve_address");
    return wrapped_.reserve_address(bytes, alignment);
  }
  void free_address(void* address, std::size_t bytes) override {
    enter("free_address");
    wrapped_.free_address(address, bytes);
  }
  NativeChunk create_chunk(int device, std::size_t bytes) override {
    if (is_out_of_memory("create_chunk")) return NativeChunk::none;
    return wrapped_.create_chunk(device, bytes);
  }
  void release_chunk(NativeChunk chunk) override {
    enter("release_chunk");
    wrapped_.release_chunk(chunk);
  }
  void map_chunk(void* address, std::size_t bytes, NativeChunk chunk) override {
    enter("map_chunk");
    wrapped_.map_chunk(address, bytes, chunk);
  }
  void unmap(void* address, std::size_t bytes) override {
    enter("unmap");
    wrapped_.unmap(address, bytes);
  }
  void set_access(void* address, std::size_t bytes, std::span<const int> devices) override {
    enter("set_access");
    wrapped_.set_access(address, bytes, devices);
  }
  UniqueFd export_chunk(NativeChunk chunk) override {
    enter("export_chunk");
    return wrapped_.export_chunk(chunk);
  }
  NativeChunk import_chunk(int device, int descriptor, std::size_t bytes) override {
    enter("import_chunk");
    return wrapped_.import_chunk(device, descriptor, bytes);
  }

  void copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) override {
    enter("copy");
    wrapped_.copy(dst, src, bytes, stream);
  }
  void copy_peer(void* dst, int dst_device, const void* src, int src_device, std::size_t bytes,
                 NativeStream stream) override {
    enter("copy_peer");
    wrapped_.copy_peer(dst, dst_device, src, src_device, bytes, stream);
  }
  void copy_batch(std::span<const CopyRegion> runs, NativeStream stream) override {
    enter("copy_batch");
    wrapped_.copy_batch(runs, stream);
  }
  void fill(void* dst, std::uint8_t value, std::size_t bytes, NativeStream stream) override {
    enter("fill");
    wrapped_.fill(dst, value, bytes, stream);
  }

  PriorityRange priority_range(int device) override {
    enter("priority_range");
    return wrapped_.priority_range(device);
  }
  NativeStream create_stream(int device, int priority) override {
    enter("create_stream");
    return wrapped_.create_stream(device, priority);
  }
  void destroy_stream(NativeStream stream) noexcept override {
    count("destroy_stream");
    wrapped_.destroy_stream(stream);
  }
  std::uint64_t stream_identity(NativeStream stream) override {
    enter("stream_identity");
    return wrapped_.stream_identity(stream);
  }
  bool query_stream(NativeStream stream) override {
    enter("query_stream");
    return wrapped_.query_stream(stream);
  }
  void synchronize_stream(NativeStream stream) override {
    enter("synchronize_stream");
    wrapped_.synchronize_stream(stream);
  }
  void wait_event(NativeStream stream, NativeEvent event) override {
    enter("wait_event");
    wrapped_.wait_event(stream, event);
  }
  void wait_for_word(NativeStream stream, const std::uint32_t* word, std::uint32_t value) override {
    enter("wait_for_word");
    wrapped_.wait_for_word(stream, word, value);
  }
  void launch_host_function(NativeStream stream, void (*function)(void*), void* data) override {
    enter("launch_host_function");
    wrapped_.launch_host_function(stream, function, data);
  }

  NativeEvent create_event(int device, NativeEventFlags flags) override {
    enter("create_event");
    return wrapped_.create_event(device, flags);
  }
  void destroy_event(NativeEvent event) noexcept override {
    count("destroy_event");
    wrapped_.destroy_event(event);
  }
  void record_event(NativeEvent event, NativeStream stream) override {
    enter("record_event");
    wrapped_.record_event(event, stream);
  }
  bool query_event(NativeEvent event) override {
    enter("query_event");
    return wrapped_.query_event(event);
  }
  bool event_reached(NativeEvent event) noexcept override {
    return !count("event_reached") && wrapped_.event_reached(event);
  }
  void synchronize_event(NativeEvent event) override {
    enter("synchronize_event");
    wrapped_.synchronize_event(event);
  }
  float elapsed_ms(NativeEvent begin, NativeEvent end) override {
    enter("elapsed_ms");
    return wrapped_.elapsed_ms(begin, end);
  }

  bool can_access_peer(int from, int to) override {
    enter("can_access_peer");
    return wrapped_.can_access_peer(from, to);
  }
  bool has_peer_atomics(int from, int to) override {
    enter("has_peer_atomics");
    return wrapped_.has_peer_atomics(from, to);
  }
  void enable_peer_access(int from, int to) override {
    enter("enable_peer_access");
    wrapped_.enable_peer_access(from, to);
  }
  NativeMemoryHandle export_memory(void* base) override {
    enter("export_memory");
    return wrapped_.export_memory(base);
  }
  void* open_memory(int device, const NativeMemoryHandle& handle) override {
    enter("open_memory");
    return wrapped_.open_memory(device, handle);
  }
  void close_memory(void* base) override {
    enter("close_memory");
    wrapped_.close_memory(base);
  }
  NativeEventHandle export_event(NativeEvent event) override {
    enter("export_event");
    return wrapped_.export_event(event);
  }
  NativeEvent open_event(int device, const NativeEventHandle& handle) override {
    enter("open_event");
    return wrapped_.open_event(device, handle);
  }

  void begin_capture(NativeStream stream, CaptureMode mode) override {
    enter("begin_capture");
    wrapped_.begin_capture(stream, mode);
  }
  NativeGraph end_capture(NativeStream stream) override {
    enter("end_capture");
    return wrapped_.end_capture(stream);
  }
  bool is_capturing(NativeStream stream) override {
    enter("is_capturing");
    return wrapped_.is_capturing(stream);
  }
  std::uint64_t capture_id(NativeStream stream) override {
    enter("capture_id");
    return wrapped_.capture_id(stream);
  }
  void retain_by_capture(NativeStream stream, void (*release)(void*), void* data) override {
    try {
      enter("retain_by_capture");
    } catch (...) {
      release(data);
      throw;
    }
    wrapped_.retain_by_capture(stream, release, data);
  }
  void launch_graph(NativeGraph graph, NativeStream stream) override {
    enter("launch_graph");
    wrapped_.launch_graph(graph, stream);
  }
  void destroy_graph(NativeGraph graph) noexcept override {
    count("destroy_graph");
    wrapped_.destroy_graph(graph);
  }

 private:
  struct Plan {
    std::uint64_t first;  ///< count of the first call that fails
    std::uint64_t end;    ///< count of the first one after it that does not
    Failure failure;
  };

  // Counts the call; the failure that was planned for it, if any.
  std::optional<Failure> count(const char* call) noexcept {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = ++counts_[call];
    const auto plan = plans_.find(call);
    const bool fails =
        plan != plans_.end() && number >= plan->second.first && number < plan->second.end;
    return fails ? std::optional(plan->second.failure) : std::nullopt;
  }
  void enter(const char* call) {
    if (const auto failure = count(call)) fail(call, *failure);
  }
  bool is_out_of_memory(const char* call) {
    const auto failure = count(call);
    if (!failure) return false;
    if (failure->code != kOutOfMemory.code) fail(call, *failure);
    return true;
  }
  [[noreturn]] static void fail(const char* call, const Failure& failure) {
    throw CudaError(std::string("Failed on purpose in a test: ") + std::string(failure.name) +
                        " [" + call + "]",
                    failure.code, failure.name);
  }

  Driver& wrapped_;
  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t> counts_;
  std::map<std::string, Plan> plans_;
};

}  // namespace gantry::testing
