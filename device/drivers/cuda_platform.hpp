// The functions of the CUDA driver that the platform calls.
#pragma once

#include <memory>
#include <string>

#include <gantry/extend/driver.hpp>

namespace gantry {

/// The state of the CUDA driver.
struct CudaProbe {
  int count = 0;        ///< visible GPUs
  std::string problem;  ///< why there is none, if count is 0
};

/// Counts the visible GPUs; creates no context. Never throws for a machine without GPUs.
[[nodiscard]] CudaProbe probe_cuda();

/// The driver for real GPUs. Throws: NotSupported in a build without CUDA.
[[nodiscard]] std::unique_ptr<Driver> make_cuda_driver(int device_count);

/// True if the stream and the legacy default stream of its device wait for each other: a stream
/// that the program made without cudaStreamNonBlocking. False for gantry's own streams and
/// simulated ones.
[[nodiscard]] bool synchronizes_with_default(NativeStream stream) noexcept;

/// As is_idle(), for a CUDA stream.
[[nodiscard]] bool is_cuda_stream_idle(NativeStream stream) noexcept;

/// As may_look_at(), for a CUDA stream.
[[nodiscard]] bool may_look_at_cuda_stream(NativeStream stream) noexcept;

}  // namespace gantry
