#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

/// Makes a stream and its device current for a scope.
///
/// The destructor restores the current device, and the stream that was current on the device of the
/// given stream.
/// @code
/// const Stream side = Stream::from_pool("cuda:0");
/// {
///   const StreamGuard guard(side);
///   const Tensor x = ones({4}, "cuda:0");  // runs on `side`
/// }
/// @endcode
/// @since 0.1
class GANTRY_API StreamGuard {
 public:
  /// Makes `stream` and its device current.
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

  /// The stream that this guard made current.
  [[nodiscard]] const Stream& current_stream() const noexcept { return current_; }
  /// The stream that was current on the same device before.
  [[nodiscard]] const Stream& original_stream() const noexcept { return original_; }

 private:
  DeviceGuard device_guard_;
  Stream original_;
  Stream current_;
};

/// Makes one stream on each of several devices current for a scope; the current device stays.
/// @code
/// const MultiStreamGuard guard({Stream::from_pool("cuda:0"), Stream::from_pool("cuda:1")});
/// (void)comm::broadcast(ones({4}, "cuda:0"), {"cuda:0", "cuda:1"});
/// @endcode
/// @since 0.1
class GANTRY_API MultiStreamGuard {
 public:
  /// Makes each of `streams` its device's current stream.
  explicit MultiStreamGuard(std::span<const Stream> streams);
  /// As above for a list: `MultiStreamGuard guard({first, second})`.
  explicit MultiStreamGuard(std::initializer_list<Stream> streams)
      : MultiStreamGuard(std::span<const Stream>(streams.begin(), streams.size())) {}
  ~MultiStreamGuard();
  MultiStreamGuard(const MultiStreamGuard&) = delete;
  MultiStreamGuard& operator=(const MultiStreamGuard&) = delete;

 private:
  std::vector<Stream> originals_;
};

}  // namespace gantry
