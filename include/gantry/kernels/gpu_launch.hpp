#pragma once

// The parts of launch.hpp that nvcc compiles differently.

#include <cstddef>
#include <cstdint>

#include <gantry/core/export.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/kernels/block.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::detail {

[[noreturn]] GANTRY_API void throw_launch_failed(const char* op, const Stream& stream, int code,
                                                 const char* name, const char* text);

// For a launch that found no memory: true if cached memory of the device was released for it.
[[nodiscard]] GANTRY_API bool reclaim_for_launch(const Stream& stream) noexcept;

// A file that nvcc compiles and one that another compiler does may both launch the same functor
// type. The tag gives them different template instances, as the one-definition rule requires.
struct CompiledForHost {};
struct CompiledForGpu {};

#ifdef __CUDACC__

using CompiledHere = CompiledForGpu;
// In front of host functions that call a functor for both.
#define GANTRY_NO_EXEC_CHECK _Pragma("nv_exec_check_disable")

inline constexpr int kLoopThreads = 256;
inline constexpr std::int64_t kMostLoopBlocks = std::int64_t{1} << 20;  // the loop covers more

template <class F>
__global__ void __launch_bounds__(kLoopThreads)
    parallel_for_kernel(std::int64_t n, const F functor) {
  const std::int64_t step = std::int64_t{gridDim.x} * kLoopThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kLoopThreads + threadIdx.x; i < n; i += step) {
    functor(i);
  }
}

// Limits registers so that a block of up to kMost threads can launch with any functor.
template <int kMost, class F>
__global__ void __launch_bounds__(kMost) block_kernel(const F functor) {
  Block block = BlockMaker::on_gpu();
  functor(block);
}

template <class Kernel, class... Arguments>
void launch_on_gpu(const char* op, const Stream& stream, dim3 grid, dim3 block,
                   std::size_t shared_bytes, Kernel* kernel, const Arguments&... arguments) {
  const DeviceGuard guard(stream.device());
  cudaError_t status = cudaSuccess;
  if (shared_bytes > (std::size_t{48} << 10)) {  // above 48 KiB a kernel must opt in
    status = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared_bytes));
  }
  if (status == cudaSuccess) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream.native_handle());
    status = cudaLaunchKernelEx(&config, kernel, arguments...);
    if (status == cudaErrorMemoryAllocation && reclaim_for_launch(stream)) {
      (void)cudaGetLastError();
      status = cudaLaunchKernelEx(&config, kernel, arguments...);
    }
  }
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw_launch_failed(op, stream, static_cast<int>(status), cudaGetErrorName(status),
                      cudaGetErrorString(status));
}

template <class Compiled, class F>
void launch_loop(const Stream& stream, std::int64_t n, const F& functor) {
  const std::int64_t blocks = (n - 1) / kLoopThreads + 1;
  launch_on_gpu("parallel_for", stream,
                dim3(static_cast<unsigned>(blocks < kMostLoopBlocks ? blocks : kMostLoopBlocks)),
                dim3(kLoopThreads), 0, &parallel_for_kernel<F>, n, functor);
}

template <class Compiled, class F>
void launch_blocks(const Stream& stream, const Grid& grid, const BlockSize& size,
                   const F& functor) {
  const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                    static_cast<unsigned>(grid.z));
  const dim3 threads(static_cast<unsigned>(size.x), static_cast<unsigned>(size.y),
                     static_cast<unsigned>(size.z));
  if (size.x * size.y * size.z <= 256) {
    launch_on_gpu("launch", stream, blocks, threads, size.shared_bytes, &block_kernel<256, F>,
                  functor);
  } else {
    launch_on_gpu("launch", stream, blocks, threads, size.shared_bytes, &block_kernel<1024, F>,
                  functor);
  }
}

#else

using CompiledHere = CompiledForHost;
#define GANTRY_NO_EXEC_CHECK

// Not reached: runs_on_simulator() throws for a GPU.
template <class Compiled, class F>
void launch_loop(const Stream&, std::int64_t, const F&) {}
template <class Compiled, class F>
void launch_blocks(const Stream&, const Grid&, const BlockSize&, const F&) {}

#endif

#if defined(__CUDACC__) && defined(__CUDACC_EXTENDED_LAMBDA__)
template <class F>
inline constexpr bool is_device_only = __nv_is_extended_device_lambda_closure_type(F);
template <class F>
inline constexpr bool is_wrapped_lambda = __nv_is_extended_host_device_lambda_closure_type(F);
#else
template <class F>
inline constexpr bool is_device_only = false;
template <class F>
inline constexpr bool is_wrapped_lambda = false;
#endif

}  // namespace gantry::detail
