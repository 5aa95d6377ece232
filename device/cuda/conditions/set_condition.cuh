// The kernel that tells a graph whether the flag of a condition is set.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace gantry::cuda {

/// Enqueues the kernel; it reads the flag in stream order. The caller asks for the launch's error.
void launch_set_condition(cudaGraphConditionalHandle handle, const void* flag,
                          std::size_t flag_bytes, cudaStream_t stream);

}  // namespace gantry::cuda
