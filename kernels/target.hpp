#pragma once

#include <optional>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::kernels {

// Where a kernel runs: on the calling thread for CPU tensors, else in order on a stream.
//
// Every function of this layer takes a Target first. On a stream the call only submits; on the CPU
// the work is done on return. Callers have checked shapes, dtypes and devices; operands live on the
// target's device or on a peer with access enabled, and output does not partially overlap input.
class Target {
 public:
  static Target cpu() { return Target(std::nullopt); }
  static Target on(const Stream& stream) { return Target(stream); }

  bool is_cpu() const { return !stream_.has_value(); }
  // Precondition: !is_cpu().
  const Stream& stream() const { return *stream_; }
  Device device() const { return is_cpu() ? Device::cpu() : stream_->device(); }

 private:
  explicit Target(std::optional<Stream> stream) : stream_(stream) {}

  std::optional<Stream> stream_;
};

}  // namespace gantry::kernels
