#pragma once

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>

namespace gantry {

/// The calling thread's cuBLAS handle (cublasHandle_t) for `device`, for the program's own cuBLAS
/// calls.
///
/// The thread's first call makes the handle, and loads cuBLAS. The handle is destroyed with the
/// thread. Each call sets it to the current stream of the device. Make the first call before a
/// capture, because cuBLAS allocates memory then.
/// Device/stream: the current stream of `device`. Thread safety: each thread has its own handle.
/// Throws: NotSupported on simulated devices, without cuBLAS, and in a build without CUDA;
/// InvalidArgument if there is no such device; CublasError.
/// @since 0.3
[[nodiscard]] GANTRY_API void* current_blas_handle(Device device = Device::cuda());

}  // namespace gantry
