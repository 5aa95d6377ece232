#pragma once

#include <optional>

#include <gantry/streams/stream.hpp>
#include <gantry/streams/stream_guard.hpp>

namespace gantry {

/// A StreamGuard that does nothing until it is given a stream.
/// @code
/// OptionalStreamGuard guard;
/// guard.set_stream(Stream::from_pool("cuda:0"));
/// @endcode
/// @since 0.3
class OptionalStreamGuard {
 public:
  OptionalStreamGuard() = default;
  /// Makes `stream` and its device current if there is one.
  explicit OptionalStreamGuard(const std::optional<Stream>& stream) {
    if (stream) set_stream(*stream);
  }

  /// Restores the previous stream and device, then makes `stream` and its device current until the
  /// end of the scope.
  void set_stream(const Stream& stream) {
    guard_.reset();
    guard_.emplace(stream);
  }
  /// Restores the previous stream and device. The guard is as after default construction.
  void reset() noexcept { guard_.reset(); }
  /// The stream that this guard made current; none if it did nothing.
  [[nodiscard]] std::optional<Stream> current_stream() const noexcept {
    return guard_ ? std::optional(guard_->current_stream()) : std::nullopt;
  }
  /// The stream that was current on the same device before; none if the guard did nothing.
  [[nodiscard]] std::optional<Stream> original_stream() const noexcept {
    return guard_ ? std::optional(guard_->original_stream()) : std::nullopt;
  }

 private:
  std::optional<StreamGuard> guard_;
};

}  // namespace gantry
