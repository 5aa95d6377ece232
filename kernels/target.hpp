#pragma once

#include <optional>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::kernels {

// The execution target of a kernel: the calling thread for CPU tensors, else a stream.
//
// Every function of this layer takes a Target first. On a stream the call only submits. On the CPU
// the work is complete on return. Preconditions: the caller has checked shapes, dtypes and devices.
// Operands are on the target's device or on a peer with access enabled. Outputs do not partially
// overlap inputs.
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
