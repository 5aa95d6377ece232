// The kernel that tells a graph whether the flag of a condition is set.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "device/cuda/capture_bodies.hpp"

namespace gantry::cuda {

/// Enqueues the kernel; it reads the flag in stream order. The condition is false if one of `stops`
/// is not 0. The caller checks the launch.
void launch_set_condition(cudaGraphConditionalHandle handle, const void* flag,
                          std::size_t flag_bytes, const StopWords& stops, cudaStream_t stream);

}  // namespace gantry::cuda
