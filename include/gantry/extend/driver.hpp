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

// Note [Driver calls]
// Each call of a driver is one row of a list in driver/*.inc, below its documentation:
//   GANTRY_DRIVER_CALL(name, (parameters), (arguments) [, noexcept])
//   GANTRY_DRIVER_VALUE(result, name, (parameters), (arguments) [, noexcept])
//   GANTRY_DRIVER_OWNING_CALL(…): calls its parameter `release` with `data` even if it throws
// The rows declare the facets here, what CudaDriver and SimDriver override, and what
// ForwardingDriver forwards. So a new call is a row and its two implementations.

#define GANTRY_DRIVER_CALL(name, parameters, arguments, ...) \
  virtual void name parameters __VA_ARGS__ = 0;
#define GANTRY_DRIVER_OWNING_CALL GANTRY_DRIVER_CALL
#define GANTRY_DRIVER_VALUE(result, name, parameters, arguments, ...) \
  [[nodiscard]] virtual result name parameters __VA_ARGS__ = 0;

/// Devices, and the calling thread's current one.
class GANTRY_API DeviceCalls {
 public:
  virtual ~DeviceCalls() = default;
#include <gantry/extend/driver/device_calls.inc>
};

/// Memory of devices, page-locked memory, and copies.
///
/// Copies are ordered on `stream`. The host blocks for pageable host memory. It also blocks for
/// copies within page-locked memory, which CUDA makes on the host.
class GANTRY_API MemoryCalls {
 public:
  virtual ~MemoryCalls() = default;
#include <gantry/extend/driver/memory_calls.inc>
};

/// Stream-ordered memory. Each device has a pool of gantry's own, which keeps freed memory. Not on
/// a stream that is being captured.
class GANTRY_API PoolCalls {
 public:
  virtual ~PoolCalls() = default;
#include <gantry/extend/driver/pool_calls.inc>
};

/// Addresses, and physical memory that is mapped to them.
class GANTRY_API VirtualMemoryCalls {
 public:
  virtual ~VirtualMemoryCalls() = default;
#include <gantry/extend/driver/virtual_memory_calls.inc>
};

/// Streams.
class GANTRY_API StreamCalls {
 public:
  virtual ~StreamCalls() = default;
  /// Greatest (numerically lowest) and least priority that create_stream takes.
  struct PriorityRange {
    int least = 0;     ///< for ordinary work
    int greatest = 0;  ///< for urgent work
  };
#include <gantry/extend/driver/stream_calls.inc>
};

/// Events.
class GANTRY_API EventCalls {
 public:
  virtual ~EventCalls() = default;
#include <gantry/extend/driver/event_calls.inc>
};

/// Access of devices to each other's memory.
class GANTRY_API PeerCalls {
 public:
  virtual ~PeerCalls() = default;
#include <gantry/extend/driver/peer_calls.inc>
};

/// Memory and events of other processes.
class GANTRY_API IpcCalls {
 public:
  virtual ~IpcCalls() = default;
#include <gantry/extend/driver/ipc_calls.inc>
};

/// Captures, graphs and their conditions.
///
/// While a stream is captured, other calls are allowed in every mode and on every thread, except
/// calls that conflict with the capture: to query or synchronize with a captured stream, a captured
/// event, or a device with a captured stream; to wait on a default stream for a captured event, or
/// on a captured stream for an event from outside. Those throw CudaError and spoil the capture. A
/// mode may also forbid synchronize_device() for other devices.
class GANTRY_API CaptureCalls {
 public:
  virtual ~CaptureCalls() = default;
#include <gantry/extend/driver/capture_calls.inc>
};

#undef GANTRY_DRIVER_CALL
#undef GANTRY_DRIVER_OWNING_CALL
#undef GANTRY_DRIVER_VALUE

/// The interface between gantry and the machine, with calls like those of the CUDA runtime.
///
/// CudaDriver and SimDriver implement it, and all higher layers are written once on top of it.
/// Device indices count visible devices; the caller has checked them. Unless stated otherwise, a
/// call that fails throws CudaError and changes nothing. The error has CUDA's number on both
/// platforms. Calls that take a NativeStream or a device index leave the thread's current device
/// unchanged.
///
/// Thread safety: every call may be made from any thread.
class GANTRY_API Driver : public DeviceCalls,
                          public MemoryCalls,
                          public PoolCalls,
                          public VirtualMemoryCalls,
                          public StreamCalls,
                          public EventCalls,
                          public PeerCalls,
                          public IpcCalls,
                          public CaptureCalls {
 public:
  /// Platform that this driver serves.
  [[nodiscard]] virtual Platform platform() const noexcept = 0;
};

/// The driver of this process's platform; initialises it at the first call.
/// Throws: NotSupported without a platform; ForkError in a bad fork.
[[nodiscard]] GANTRY_API Driver& driver();

/// Replaces the driver, for tests that inject faults, and returns the previous one. `nullptr`
/// restores the platform's own driver.
/// Thread safety: none. Precondition: no device work is in flight.
GANTRY_API Driver* exchange_driver(Driver* replacement);

}  // namespace gantry
