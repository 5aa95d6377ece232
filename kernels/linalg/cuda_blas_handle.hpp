// cuBLAS handles, for calls of the program's own.
#pragma once

#include <gantry/streams/stream.hpp>

namespace gantry::kernels::cuda {

/// The thread's cuBLAS handle for the device of `stream`, which is current, set to that stream.
/// Throws: NotSupported without cuBLAS; CublasError.
[[nodiscard]] void* blas_handle(const Stream& stream);

}  // namespace gantry::kernels::cuda
