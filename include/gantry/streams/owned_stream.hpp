#pragma once

#include <memory>

#include <gantry/core/checked_ptr.hpp>
#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

/// Priorities of the streams of one device. A lower number is more urgent.
/// @since 0.3
struct StreamPriorityRange {
  int least = 0;     ///< for ordinary work
  int greatest = 0;  ///< for urgent work; the lowest number

  friend bool operator==(const StreamPriorityRange&, const StreamPriorityRange&) = default;
};

/// The priorities that an OwnedStream of `device` can have. Creates a context on the device.
/// Throws: InvalidArgument if there is no such device; CudaError.
/// @since 0.3
[[nodiscard]] GANTRY_API StreamPriorityRange stream_priority_range(Device device = Device::cuda());

/// A stream that is made for its owner, and destroyed with it.
///
/// Unlike a pooled stream it has one user. Submitted work still completes after the destruction.
/// Preconditions of the destruction are those of Stream::external(). The stream is no thread's
/// current stream. No memory that was allocated, imported or recorded on it is live. Making a
/// stream may wait for all work of the device. Move-only; after a move every member of the source
/// throws InvalidArgument.
/// Thread safety: every member may be called from any thread.
/// @code
/// const int urgent = stream_priority_range("cuda:0").greatest;
/// const OwnedStream owned("cuda:0", urgent);
/// owned.stream().synchronize();
/// @endcode
/// @since 0.3
class GANTRY_API OwnedStream {
 public:
  /// Makes a stream that does not synchronize with the default stream.
  /// Throws: InvalidArgument if there is no such device, or if `priority` is outside
  /// stream_priority_range(); CudaError.
  explicit OwnedStream(Device device = Device::cuda(), int priority = 0);

  /// The stream, valid until the owner is destroyed.
  [[nodiscard]] const Stream& stream() const;
  /// The priority of the stream, as given.
  [[nodiscard]] int priority() const;

 private:
  struct Made {
    Stream stream;
    int priority;
  };
  struct Destroy {
    void operator()(Made* made) const noexcept;
  };

  gantry::detail::CheckedPtr<std::unique_ptr<Made, Destroy>> made_;
};

}  // namespace gantry
