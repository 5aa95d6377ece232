#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>
#include <gantry/device/native_handles.hpp>
#include <gantry/streams/event.hpp>

namespace gantry {

/// Priority class of a pooled stream.
/// @since 0.1
enum class StreamPriority : std::uint8_t {
  normal,  ///< lowest priority of the device
  high,    ///< highest priority of the device
};

/// A queue of device work: the work of one stream runs in order of submission.
///
/// A cheap value that names a stream and does not own it. Default and pooled streams live as long
/// as the process. The creator of an external stream destroys it.
///
/// Thread safety: all members may be called from any thread.
/// @code
/// const Stream side = Stream::from_pool("cuda:0");
/// side.wait(Stream::current("cuda:0"));  // for the work so far
/// const StreamGuard guard(side);
/// const Tensor x = ones({4}, "cuda:0");  // runs on `side`
/// side.synchronize();
/// @endcode
/// @since 0.1
class GANTRY_API Stream {
 public:
  /// The calling thread's current stream of `device`: the default stream, unless set_stream() or a
  /// guard chose another.
  [[nodiscard]] static Stream current(Device device = Device::cuda());
  /// The legacy default stream (stream 0) of `device`. Kernels that other code launches on stream 0
  /// are ordered with it.
  [[nodiscard]] static Stream default_stream(Device device = Device::cuda());
  /// The next of 32 streams per device and priority, round-robin. The first call makes all 64
  /// streams of the device.
  [[nodiscard]] static Stream from_pool(Device device = Device::cuda(),
                                        StreamPriority priority = StreamPriority::normal);
  /// Wraps a foreign stream (cudaStream_t) of `device`. The caller keeps it alive while it is any
  /// thread's current stream. It also outlives all memory that was allocated on it, imported while
  /// it was current, or recorded on it (record_stream()). After that it may be destroyed, even with
  /// incomplete work.
  [[nodiscard]] static Stream external(void* native_handle, Device device = Device::cuda());

  /// True if all work submitted so far is complete. Does not block. Throws: asynchronous errors.
  [[nodiscard]] bool query() const;
  /// Blocks the host until all work submitted so far is complete. Throws: asynchronous errors.
  void synchronize() const;
  /// Makes later work of this stream wait for the last record of `event`. The host does not block.
  void wait(const Event& event) const;
  /// Makes later work of this stream wait for all work submitted so far to `other`, on any device.
  /// The host does not block.
  void wait(const Stream& other) const;
  /// Records a new event after the work submitted so far.
  [[nodiscard]] Event record() const;
  /// Records `event` after the work submitted so far. Throws: as Event::record().
  void record(Event& event) const;

  /// The device whose work the stream carries.
  [[nodiscard]] Device device() const noexcept { return Device::cuda(native_.device); }
  /// cudaStream_t on CUDA; nullptr for the default stream.
  [[nodiscard]] void* native_handle() const noexcept { return native_.handle; }
  /// The driver's handle of the stream.
  [[nodiscard]] const NativeStream& native() const noexcept { return native_; }
  /// Number of the stream, unique among the streams of its device in this process. 0 for the
  /// default stream.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// Priority class; external streams have `normal`.
  [[nodiscard]] StreamPriority priority() const noexcept { return priority_; }

  friend bool operator==(const Stream& a, const Stream& b) noexcept {
    return a.native_ == b.native_;
  }

 private:
  Stream(NativeStream native, std::uint64_t id, StreamPriority priority) noexcept
      : native_(native), id_(id), priority_(priority) {}

  NativeStream native_;
  std::uint64_t id_ = 0;
  StreamPriority priority_ = StreamPriority::normal;
};

/// Writes text such as "stream 3 of cuda:1".
GANTRY_API std::ostream& operator<<(std::ostream& out, const Stream& stream);

/// Makes `stream` the calling thread's current stream of its device; the current device stays.
/// @since 0.1
GANTRY_API void set_stream(const Stream& stream);

}  // namespace gantry

template <>
struct std::hash<gantry::Stream> {
  std::size_t operator()(const gantry::Stream& stream) const noexcept {
    return std::hash<void*>{}(stream.native_handle()) * 31 +
           static_cast<std::size_t>(stream.native().device);
  }
};
