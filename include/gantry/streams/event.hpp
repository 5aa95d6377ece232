#pragma once

#include <memory>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>
#include <gantry/device/native_handles.hpp>

namespace gantry {

class Stream;

namespace detail {

struct Timestamp;

/// Returns the timestamp of a destroyed event to the thread's cache.
struct GANTRY_API TimestampRecycler {
  void operator()(Timestamp* timestamp) const noexcept;
};

}  // namespace detail

/// Properties of an Event.
/// @since 0.1
struct EventOptions {
  bool timing = false;        ///< elapsed_ms() is available
  bool blocking = false;      ///< synchronize() sleeps instead of spinning
  bool interprocess = false;  ///< ipc_handle() is available; excludes timing
  /// In a capture, record() and wait() become nodes of the graph. Each replay records the event
  /// anew, or waits for its last record. The event outlives the graph. Excludes interprocess.
  /// @code
  /// Event end({.external = true});
  /// Graph graph;
  /// { const GraphCapture capture(graph); end.record(); }
  /// graph.replay();
  /// end.synchronize();  // with this replay
  /// @endcode
  /// @since 0.3
  bool external = false;
};

/// Handle by which another process opens an event. The program may send its bytes by any means.
using IpcEventHandle = NativeEventHandle;

/// A marker in a stream's work, which streams and the host can wait for.
///
/// The first record determines its device. A wait refers to the last record before the wait; later
/// records do not change it. Move-only. A moved-from event is like a new one with the same options.
/// Thread safety: one thread at a time.
/// @code
/// Event begin({.timing = true}), end({.timing = true});
/// begin.record(Stream::current("cuda:0"));
/// const Tensor x = ones({256}, "cuda:0").exp();
/// end.record(Stream::current("cuda:0"));
/// end.synchronize();
/// std::cout << begin.elapsed_ms(end) << " ms";
/// @endcode
/// @since 0.1
class GANTRY_API Event {
 public:
  /// Makes an event without a device and without a record.
  explicit Event(EventOptions options = {});
  /// Opens an event that another process exported. Throws: CudaError if that fails.
  [[nodiscard]] static Event from_ipc(const IpcEventHandle& handle, Device device);
  ~Event();
  /// Takes over the event of `other`.
  Event(Event&& other) noexcept;
  /// Destroys the own event, then takes over that of `other`.
  Event& operator=(Event&& other) noexcept;

  /// Marks the work submitted to `stream` so far. Throws: InvalidArgument if the event was made on
  /// another device.
  void record(const Stream& stream);
  /// Marks the current stream of the event's device, or of the current device if it has none yet.
  void record();
  /// Makes later work of `stream`, on any device, wait for the last record. Has no effect without a
  /// record.
  void wait(const Stream& stream) const;
  /// As wait(stream) with the current stream of the current device.
  void wait() const;
  /// True if the last record is reached, or none was made. Does not block.
  [[nodiscard]] bool query() const;
  /// Blocks the host until the last record is reached. Throws: asynchronous errors.
  void synchronize() const;
  /// Milliseconds between the records of this event and of `end`. Both events need timing, and both
  /// records must be reached.
  /// Throws: InvalidArgument without timing or a record; CudaError if one is not reached.
  [[nodiscard]] float elapsed_ms(const Event& end) const;
  /// Exports the event. An event without a device is created on the current device. Other processes
  /// may open it and wait for it as long as this process exists, also after this object is
  /// destroyed.
  /// Throws: InvalidArgument if it was not made with interprocess.
  [[nodiscard]] IpcEventHandle ipc_handle();

  /// True once the event was recorded, exported or opened.
  [[nodiscard]] bool is_created() const noexcept;
  /// The event's device. Throws: InvalidArgument before is_created().
  [[nodiscard]] Device device() const;
  /// The properties that the event was made with.
  [[nodiscard]] const EventOptions& options() const noexcept { return options_; }
  /// cudaEvent_t on CUDA, nullptr before is_created().
  [[nodiscard]] void* native_handle() const noexcept { return event_; }

 private:
  void create(int device);

  EventOptions options_;
  int device_ = -1;
  NativeEvent event_ = nullptr;
  bool recorded_ = false;
  bool exported_ = false;
  std::unique_ptr<detail::Timestamp, detail::TimestampRecycler> timestamp_;  ///< of the last record
};

}  // namespace gantry
