#pragma once

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>

namespace gantry {

/// The calling thread's cuBLAS handle (cublasHandle_t) for `device`, for cuBLAS calls of one's own.
///
/// Made at the first call, and destroyed with the thread. Each call sets the handle to the current
/// stream of the device. cuBLAS is loaded at the first call. A capture must not be the first to
/// call it, because cuBLAS then allocates memory.
/// Device/stream: the current stream of `device`. Thread safety: each thread has its own handle.
/// Throws: NotSupported on simulated devices, without cuBLAS, and in a build without CUDA;
/// InvalidArgument if there is no such device; CublasError.
[[nodiscard]] GANTRY_API void* current_blas_handle(Device device = Device::cuda());

}  // namespace gantry
