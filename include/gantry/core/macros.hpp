#pragma once

#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 202002L
// A missing include file stops the compiler. After an #error it continues, with thousands of
// errors.
#define GANTRY_TOO_OLD "gantry needs C++20: compile with -std=c++20 or newer"
#include GANTRY_TOO_OLD
#endif

/// Marks a function that runs on the host and inside CUDA kernels.
///
/// Under nvcc it expands to `__host__ __device__`; elsewhere it is empty. So one functor serves the
/// simulator, CPU tensors and the GPU.
/// @since 0.1
#ifdef __CUDACC__
#define GANTRY_HD __host__ __device__
#else
#define GANTRY_HD
#endif

/// The architecture that device code is compiled for, as in __CUDA_ARCH__; 0 in host code.
/// GANTRY_PTX is an asm statement in device code, and nothing in host code.
/// @since 0.1
#ifdef __CUDA_ARCH__
#define GANTRY_GPU_ARCH __CUDA_ARCH__
#define GANTRY_PTX(...) asm(__VA_ARGS__)
#else
#define GANTRY_GPU_ARCH 0
#define GANTRY_PTX(...) static_cast<void>(0)
#endif
