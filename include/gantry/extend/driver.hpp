#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gantry/core/export.hpp>
#include <gantry/device/capture_mode.hpp>
#include <gantry/device/device.hpp>
#include <gantry/device/native_handles.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/unique_fd.hpp>

namespace gantry {

/// How an event is made.
struct NativeEventFlags {
  bool timing = false;        ///< elapsed_ms() is available
  bool blocking = false;      ///< synchronize_event sleeps instead of spinning
  bool interprocess = false;  ///< export_event() is available; excludes timing
};

/// Opaque name of device memory that another process can open.
struct NativeMemoryHandle {
  std::array<std::byte, 64> bytes{};  ///< opaque
};

/// A piece of physical device memory that has no address of its own.
enum class NativeChunk : std::uint64_t {
  none = 0  ///< no chunk
};

/// One copy of a batch.
struct CopyRegion {
  const void* from = nullptr;  ///< source
  void* to = nullptr;          ///< destination
  std::size_t bytes = 0;       ///< size
};

/// The driver's handle of a captured graph: its nodes, and an executable instance of them.
using NativeGraph = void*;

/// How often the body of a condition runs.
enum class ConditionKind : std::uint8_t {
  if_,    ///< once if the flag is set, else not at all
  while_  ///< repeatedly, as long as the flag is set
};

/// A conditional part of a captured graph: a flag in device memory decides whether its body runs.
struct NativeCondition {
  ConditionKind kind = ConditionKind::if_;  ///< if or while
  const void* flag = nullptr;               ///< set if any of its bytes is not 0
  std::size_t flag_bytes = 1;               ///< 1 or 4
};

/// Free and total memory of a device, in bytes.
struct NativeMemoryInfo {
  std::size_t free = 0;   ///< not in use by any process
  std::size_t total = 0;  ///< capacity
};

/// Memory of a device's stream-ordered pool, in bytes.
struct NativePoolMemory {
  std::size_t used = 0;           ///< allocated and not freed yet, in stream order
  std::size_t reserved = 0;       ///< held from the device
  std::size_t used_high = 0;      ///< the most that was used
  std::size_t reserved_high = 0;  ///< the most that was held
};

/// The kind of memory that a pointer points to.
enum class PointerKind : std::uint8_t {
  unregistered,  ///< ordinary host memory, or no memory
  pinned,        ///< page-locked host memory
  device,        ///< memory of a device
};

/// Attributes of a pointer.
struct PointerInfo {
  PointerKind kind = PointerKind::unregistered;  ///< kind of memory
  int device = -1;                               ///< owner of device memory, else -1
  /// True for device memory that every device with peer access may use, as that of cudaMalloc.
  /// False for virtual memory and memory pools, whose access is granted per range or per pool.
  bool is_open_to_peers = false;
};

/// An out-of-range index that a kernel met. The kernel writes it. The next synchronizing call or
/// query of that device throws it as IndexError and clears it.
struct FaultRecord {
  static constexpr std::uint32_t kNone = 0;     ///< no fault, or the host has taken it
  static constexpr std::uint32_t kRaised = 1;   ///< the other members describe a fault
  static constexpr std::uint32_t kWriting = 2;  ///< a kernel or a host thread holds it

  std::uint32_t raised = kNone;  ///< kNone, kRaised or kWriting
  std::int32_t dim = 0;          ///< of the tensor that was indexed
  std::int64_t index = 0;        ///< that was asked for
  std::int64_t size = 0;         ///< of that dim
  const char* op = nullptr;      ///< name of the operation, a string literal of the host
};

/// The interface between gantry and the machine, with calls like those of the CUDA runtime.
///
/// CudaDriver and SimDriver implement it, and all higher layers are written once on top of it.
/// Device indices count visible devices; the caller has checked them. Unless stated otherwise, a
/// call that fails throws CudaError and changes nothing. The error has CUDA's number on both
/// platforms. Calls that take a NativeStream or a device index leave the thread's current device
/// unchanged.
///
/// Thread safety: every call may be made from any thread.
class GANTRY_API Driver {
 public:
  virtual ~Driver() = default;

  // Devices
  /// Platform that this driver serves.
  [[nodiscard]] virtual Platform platform() const noexcept = 0;
  /// Number of visible devices.
  [[nodiscard]] virtual int device_count() = 0;
  /// Properties of `device`; creates no context.
  [[nodiscard]] virtual DeviceProperties properties(int device) = 0;
  /// Free and total memory of `device`, in bytes.
  [[nodiscard]] virtual NativeMemoryInfo memory_info(int device) = 0;
  /// The calling thread's current device.
  [[nodiscard]] virtual int current_device() = 0;
  /// Makes `device` the calling thread's current device.
  virtual void set_device(int device) = 0;
  /// Makes `device` current again at the end of a scope, without creating a context on it.
  virtual void restore_device(int device) noexcept = 0;
  /// Blocks the host until all work of `device` is done; rethrows asynchronous errors.
  virtual void synchronize_device(int device) = 0;
  /// Host-visible fault record of `device`, written by its kernels.
  [[nodiscard]] virtual FaultRecord* fault_record(int device) = 0;

  // Memory
  /// Device memory aligned to 512 bytes at least, or nullptr if the device is out of memory.
  [[nodiscard]] virtual void* allocate(int device, std::size_t bytes) = 0;
  /// Frees memory of allocate(). Precondition: no work uses it. May block the host until the device
  /// is idle.
  virtual void deallocate(int device, void* data) = 0;
  /// Page-locked host memory that every device can access, or nullptr if the system has none left.
  [[nodiscard]] virtual void* allocate_pinned(std::size_t bytes) = 0;
  /// Frees memory of allocate_pinned(). Precondition: no work uses it.
  virtual void deallocate_pinned(void* data) = 0;
  /// Page-locks whole pages of ordinary host memory for every device. False if the system permits
  /// no more page-locked memory. The caller keeps the memory.
  [[nodiscard]] virtual bool register_host(void* data, std::size_t bytes) = 0;
  /// Undoes register_host() for the same `data`. Precondition: no work uses it.
  virtual void unregister_host(void* data) = 0;
  /// Kind and owner of the memory at `data`; unregistered for any other pointer.
  [[nodiscard]] virtual PointerInfo pointer_info(const void* data) = 0;

  // Stream-ordered memory. Each device has a pool of gantry's own, which keeps freed memory. Not on
  // a stream that is being captured.
  /// True if the calls of this section work on `device`.
  [[nodiscard]] virtual bool supports_memory_pools(int device) = 0;
  /// Memory for later work on `stream`, and for work that is ordered after this call. nullptr if
  /// the device is out of memory. Peers with access reach it, too.
  [[nodiscard]] virtual void* allocate_async(NativeStream stream, std::size_t bytes) = 0;
  /// Frees memory of allocate_async() after the work submitted to `stream`, a stream of the same
  /// device.
  virtual void deallocate_async(void* data, NativeStream stream) = 0;
  /// Releases memory whose free is complete to the device, until the pool holds `bytes_to_keep`.
  virtual void trim_pool(int device, std::size_t bytes_to_keep) = 0;
  /// The use of the pool of `device`. All zero before the first allocation.
  [[nodiscard]] virtual NativePoolMemory pool_memory(int device) = 0;
  /// Sets used_high and reserved_high to the present values.
  virtual void reset_pool_peaks(int device) = 0;

  // Virtual memory
  /// True if the calls of this section work on `device`.
  [[nodiscard]] virtual bool supports_virtual_memory(int device) = 0;
  /// The unit of chunk sizes and mappings, in bytes.
  [[nodiscard]] virtual std::size_t chunk_granularity(int device) = 0;
  /// Reserves a range of addresses without memory. Sizes in bytes.
  [[nodiscard]] virtual void* reserve_address(std::size_t bytes, std::size_t alignment) = 0;
  /// Frees a range of reserve_address(). Precondition: nothing is mapped in it.
  virtual void free_address(void* address, std::size_t bytes) = 0;
  /// Creates exportable physical memory. NativeChunk::none if the device is out of memory.
  [[nodiscard]] virtual NativeChunk create_chunk(int device, std::size_t bytes) = 0;
  /// Drops this process's reference. The last mapping keeps the memory.
  virtual void release_chunk(NativeChunk chunk) = 0;
  /// Maps a whole chunk of `bytes` to reserved addresses. No device has access before set_access().
  virtual void map_chunk(void* address, std::size_t bytes, NativeChunk chunk) = 0;
  /// Unmaps whole chunks. Precondition: no work uses them.
  virtual void unmap(void* address, std::size_t bytes) = 0;
  /// Lets `devices` read and write the mapped range.
  virtual void set_access(void* address, std::size_t bytes, std::span<const int> devices) = 0;
  /// A file descriptor, close-on-exec, by which any process can import the chunk.
  [[nodiscard]] virtual UniqueFd export_chunk(NativeChunk chunk) = 0;
  /// Opens a chunk that any process exported. The caller keeps the descriptor.
  [[nodiscard]] virtual NativeChunk import_chunk(int device, int descriptor, std::size_t bytes) = 0;

  // Copies are ordered on `stream`. The host blocks for pageable host memory. It also blocks for
  // copies within page-locked memory, which CUDA makes on the host.
  /// Copies `bytes` between memory of the stream's device and the host, in any direction.
  virtual void copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) = 0;
  /// Copies `bytes` from one device to another, with or without peer access.
  virtual void copy_peer(void* dst, int dst_device, const void* src, int src_device,
                         std::size_t bytes, NativeStream stream) = 0;
  /// Copies every region, in any order, between memory of devices. A batch avoids the gap between
  /// single copies, which is largest for reads from a peer. On the default stream and in captures
  /// the regions are single copies.
  virtual void copy_batch(std::span<const CopyRegion> runs, NativeStream stream) = 0;
  /// Sets every byte to `value`.
  virtual void fill(void* dst, std::uint8_t value, std::size_t bytes, NativeStream stream) = 0;

  // Streams
  /// Greatest (numerically lowest) and least priority that create_stream takes.
  struct PriorityRange {
    int least = 0;     ///< for ordinary work
    int greatest = 0;  ///< for urgent work
  };
  /// Priorities that create_stream takes on `device`.
  [[nodiscard]] virtual PriorityRange priority_range(int device) = 0;
  /// A stream that does not synchronize with the legacy default stream.
  [[nodiscard]] virtual NativeStream create_stream(int device, int priority) = 0;
  /// Destroys a stream of create_stream(). Its work still runs.
  virtual void destroy_stream(NativeStream stream) noexcept = 0;
  /// A number that no other stream of this process has, at any time. Handles are reused, these
  /// numbers are not. 0 for the default stream.
  [[nodiscard]] virtual std::uint64_t stream_identity(NativeStream stream) = 0;
  /// True if all work submitted so far is complete. Throws: the stream's asynchronous error.
  [[nodiscard]] virtual bool query_stream(NativeStream stream) = 0;
  /// Blocks the host until all work submitted so far is complete. Throws: the stream's asynchronous
  /// error.
  virtual void synchronize_stream(NativeStream stream) = 0;
  /// Makes later work on `stream` wait for the record that `event` holds now.
  virtual void wait_event(NativeStream stream, NativeEvent event) = 0;
  /// Makes later work on `stream` wait until std::int32_t(*word - value) >= 0: until the word is at
  /// least `value`, modulo 2^32. `word` is aligned, in page-locked host memory, and must exist
  /// until the wait ends. The writer stores it with release order; work after the wait sees the
  /// writer's earlier writes. Not on a stream that is being captured.
  virtual void wait_for_word(NativeStream stream, const std::uint32_t* word,
                             std::uint32_t value) = 0;
  /// Runs `function(data)` on a host thread in stream order. The function must not call the driver.
  virtual void launch_host_function(NativeStream stream, void (*function)(void*), void* data) = 0;

  // Events
  /// Creates an event that holds no record.
  [[nodiscard]] virtual NativeEvent create_event(int device, NativeEventFlags flags) = 0;
  /// Destroys an event. Submitted waits for it remain in effect.
  virtual void destroy_event(NativeEvent event) noexcept = 0;
  /// Records the work submitted to `stream` so far; replaces the last record.
  virtual void record_event(NativeEvent event, NativeStream stream) = 0;
  /// True if the last record is reached, or none was made.
  [[nodiscard]] virtual bool query_event(NativeEvent event) = 0;
  /// True if the last record is reached, or none was made. Unlike query_event() it throws nothing,
  /// leaves faults and errors pending, and is allowed in captures. False for an event after failed
  /// work, and for one that cannot be queried.
  [[nodiscard]] virtual bool event_reached(NativeEvent event) noexcept = 0;
  /// Blocks the host until the last record is reached; rethrows asynchronous errors.
  virtual void synchronize_event(NativeEvent event) = 0;
  /// Milliseconds between the records of two events with timing, both reached.
  [[nodiscard]] virtual float elapsed_ms(NativeEvent begin, NativeEvent end) = 0;

  // Peers
  /// True if device `from` can reach memory of device `to`.
  [[nodiscard]] virtual bool can_access_peer(int from, int to) = 0;
  /// Lets device `from` reach memory of device `to`; enabling twice has no effect.
  virtual void enable_peer_access(int from, int to) = 0;
  /// True if the link carries atomic operations, as NVLink does and PCIe does not.
  [[nodiscard]] virtual bool has_peer_atomics(int from, int to) = 0;

  // Other processes
  /// Names the whole allocation that begins at `base`.
  [[nodiscard]] virtual NativeMemoryHandle export_memory(void* base) = 0;
  /// Maps another process's allocation for `device`; opening one twice needs two closes.
  [[nodiscard]] virtual void* open_memory(int device, const NativeMemoryHandle& handle) = 0;
  /// Ends a mapping of open_memory(). Precondition: no work uses it.
  virtual void close_memory(void* base) = 0;
  /// Names an interprocess event for other processes.
  [[nodiscard]] virtual NativeEventHandle export_event(NativeEvent event) = 0;
  /// Opens another process's event for use on `device`.
  [[nodiscard]] virtual NativeEvent open_event(int device, const NativeEventHandle& handle) = 0;

  // Capture. While a stream is captured, other calls are allowed in every mode and on every thread,
  // except calls that conflict with the capture: to query or synchronize with a captured stream, a
  // captured event, or a device with a captured stream; to wait on a default stream for a captured
  // event, or on a captured stream for an event from outside. Those throw CudaError and spoil the
  // capture. A mode may also forbid synchronize_device() for other devices.
  /// Captures the work submitted to `stream` from now on instead of running it.
  virtual void begin_capture(NativeStream stream, CaptureMode mode) = 0;
  /// Ends the capture and instantiates the captured graph.
  [[nodiscard]] virtual NativeGraph end_capture(NativeStream stream) = 0;
  /// True between begin_capture and end_capture, also if the capture failed.
  [[nodiscard]] virtual bool is_capturing(NativeStream stream) = 0;
  /// The number of the capture that `stream` takes part in, unique in the process; 0 if there is
  /// none. Bodies of conditions belong to the capture around them.
  [[nodiscard]] virtual std::uint64_t capture_id(NativeStream stream) = 0;
  /// Calls `release(data)` once, when nothing can run the graph of this capture any more. Either
  /// the capture has failed, or the graph, its instances and the graphs that contain it are
  /// destroyed and have run. Any thread may make that call. If this function throws, it may itself
  /// have called `release`. `release` must not call the driver.
  /// Throws: CudaError if `stream` is not being captured.
  virtual void retain_by_capture(NativeStream stream, void (*release)(void*), void* data) = 0;
  /// True if `device` runs graphs with conditions.
  [[nodiscard]] virtual bool supports_conditions(int device) = 0;
  /// Adds a condition to the capture that `stream` takes part in. Later work on `body` is captured
  /// into the condition's body. A run of the graph reads the flag when the work before the
  /// condition is complete, and again before each further round of a loop.
  ///
  /// `body` is a created stream of the same device that is not being captured. It takes part in the
  /// same capture, but waits for no event of the work around the body. A body has kernels, fills,
  /// copies, graphs and conditions of that device; no host functions.
  virtual void begin_condition(NativeStream stream, const NativeCondition& condition,
                               NativeStream body) = 0;
  /// Ends the body that began on `body`. If it throws, the enclosing capture is invalid.
  virtual void end_condition(NativeStream body) = 0;
  /// Ends the body that began on `body`, if there is one, and invalidates the enclosing capture.
  virtual void abandon_condition(NativeStream body) noexcept = 0;
  /// Number of bodies around the work that is captured on `stream`; 0 outside of bodies.
  [[nodiscard]] virtual int condition_depth(NativeStream stream) = 0;
  /// Runs a graph in stream order. On a stream that is being captured it becomes a part of that
  /// capture's graph; a graph with conditions cannot.
  virtual void launch_graph(NativeGraph graph, NativeStream stream) = 0;
  /// Makes later launches of `graph` do what `source` does. `source` is unchanged. False, with
  /// nothing changed, if the graphs differ in more than the parameters of nodes, or if one has
  /// conditions.
  [[nodiscard]] virtual bool update_graph(NativeGraph graph, NativeGraph source) = 0;
  /// Writes the nodes of a graph and their dependencies to the file `path`, in the language DOT.
  virtual void dump_graph(NativeGraph graph, const std::string& path) = 0;
  /// Destroys a graph; runs that were launched still complete.
  virtual void destroy_graph(NativeGraph graph) noexcept = 0;
};

/// The driver of this process's platform; initialises it at the first call.
/// Throws: NotSupported without a platform; ForkError in a bad fork.
[[nodiscard]] GANTRY_API Driver& driver();

/// Replaces the driver, for tests that inject faults, and returns the previous one. `nullptr`
/// restores the platform's own driver.
/// Thread safety: none. Precondition: no device work is in flight.
GANTRY_API Driver* exchange_driver(Driver* replacement);

}  // namespace gantry
