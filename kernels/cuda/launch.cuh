// Launches of kernels, and their grids.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include <gantry/core/macros.hpp>

#include "kernels/cuda/overlap_limit.hpp"

namespace gantry::kernels::cuda {

// Throws a CudaError with the names of the kernel, the current device and the stream.
[[noreturn]] void throw_launch_error(const char* kernel, void* stream, cudaError_t status);
// True if the launch found no memory for the kernel's code, and cached memory was released for it.
[[nodiscard]] bool is_worth_repeating(cudaError_t status) noexcept;

// Note [Overlapped launches]
// A small kernel runs about as long as its launch takes. So a small launch of launch_untyped() may
// start before the preceding kernel of the stream completes, if that kernel permits it. (CUDA's
// programmatic dependent launch.) Such kernels first call wait_for_previous(). It waits until all
// preceding work is complete and its writes are visible, and then permits the next kernel to start.
// Only afterwards the kernel accesses memory.
//  - Order is kept across several kernels: each ends only after its own wait. When a kernel's
//    predecessor is complete, all work before it is complete, too. Events, copies and other kernels
//    start, as always, when the predecessor is complete.
//  - Memory that the allocator reuses in stream order is also accessed only after the wait.
//  - A capture records edges of the same kind; a replay overlaps as the stream did.
//  - A kernel permits the next one to start only after its own wait. So at most one kernel of a
//    stream waits on the multiprocessors, and its predecessor is running.
//  - A waiting kernel depends only on its predecessor, whose blocks are all running by then. It is
//    small, and delays no kernel on which others depend.
//  - A fault of preceding work ends the wait, with the same error for the whole context.
// GPUs before compute capability 9.0 have no such wait, so nothing overlaps there. The environment
// variable GANTRY_OVERLAPPED_LAUNCHES=0 switches it off.

// Begins a kernel of launch_untyped(). It must precede every access of memory. A large grid, which
// does not overlap, starts when the work ahead is done.
__device__ inline void wait_for_previous() {
  if constexpr (GANTRY_GPU_ARCH >= 900) {
    if (gridDim.x > kMostOverlappedBlocks) return;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  }
}

// Launches `kernel` with pointers to its arguments, which have exactly the types of its parameters.
// Not a template, so that callers of many kernels stay small. The kernel begins with
// wait_for_previous().
void launch_untyped(const char* name, void* stream, dim3 blocks, dim3 threads, const void* kernel,
                    void** arguments);

// Launches `kernel` on `stream` of the current device. Converts the arguments to the parameter
// types.
template <class... Expected, class... Actual>
void launch(const char* name, void* stream, dim3 blocks, dim3 threads, std::size_t shared_bytes,
            void (*kernel)(Expected...), Actual&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaError_t status = cudaLaunchKernelEx(&config, kernel, std::forward<Actual>(arguments)...);
  if (is_worth_repeating(status)) [[unlikely]] {
    status = cudaLaunchKernelEx(&config, kernel, std::forward<Actual>(arguments)...);
  }
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw_launch_error(name, stream, status);
  }
}

inline constexpr int kThreads = 256;
// The largest grid; the grid-stride loop covers more items.
inline constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 20;

// The number of blocks of kThreads threads for one thread per item.
inline unsigned blocks_for(std::int64_t items) {
  const std::int64_t blocks = (items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

// Grid-stride loop: `for (int64_t i = first_index(); i < n; i += index_step())`.
__device__ inline std::int64_t first_index() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}
__device__ inline std::int64_t index_step() {
  return static_cast<std::int64_t>(gridDim.x) * kThreads;
}

}  // namespace gantry::kernels::cuda
