#pragma once

/// Keeps a function out of the code of its callers.
#ifdef __CUDACC__
#define GANTRY_NOINLINE __noinline__
#else
#define GANTRY_NOINLINE [[gnu::noinline]]
#endif

/// Before a loop: keeps its body once in the code. Small kernels spend much of their time on
/// fetching instructions.
#ifdef __CUDA_ARCH__
#define GANTRY_ROLLED _Pragma("unroll 1")
#else
#define GANTRY_ROLLED
#endif
