#pragma once

/// Marks a function that runs on the host and inside CUDA kernels.
///
/// Under nvcc it expands to `__host__ __device__`; elsewhere it is empty, so that one functor
/// serves the simulator, CPU tensors and the GPU.
#ifdef __CUDACC__
#define GANTRY_HD __host__ __device__
#else
#define GANTRY_HD
#endif
