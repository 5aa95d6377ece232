#pragma once

#include <memory>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

/// A part of a device's multiprocessors. Kernels on its streams run on these multiprocessors only.
///
/// Kernels on other streams may use the same multiprocessors, unless their streams are of another
/// GreenContext. Memory, events and copies are those of the device. The streams are valid until the
/// context is destroyed, under the rules of OwnedStream. Neither copyable nor movable.
/// Thread safety: one thread at a time.
/// @code
/// GreenContext context(8, "cuda:0");  // 8 multiprocessors at least
/// const StreamGuard guard(context.make_stream());
/// const Tensor x = ones({4}, "cuda:0");
/// @endcode
/// @since 0.3
class GANTRY_API GreenContext {
 public:
  /// Reserves at least `multiprocessors` multiprocessors of `device`, rounded up to the device's
  /// granularity.
  /// Throws: InvalidArgument unless 0 < multiprocessors <= device_properties().multiprocessors;
  /// NotSupported on simulated devices, and without a driver for CUDA 12.5 or newer; CudaError.
  explicit GreenContext(int multiprocessors, Device device = Device::cuda());
  ~GreenContext();
  GreenContext(const GreenContext&) = delete;
  GreenContext& operator=(const GreenContext&) = delete;

  /// Number of multiprocessors that kernels on the streams may use.
  [[nodiscard]] int multiprocessors() const;
  /// The device whose multiprocessors are reserved.
  [[nodiscard]] Device device() const;
  /// Makes another stream of the context. Throws: CudaError; InvalidArgument for a `priority`
  /// outside stream_priority_range().
  [[nodiscard]] Stream make_stream(int priority = 0);

 private:
  struct GANTRY_LOCAL Impl;

  std::unique_ptr<Impl> impl_;
};

}  // namespace gantry
