#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

#include <gantry/core/export.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/kernels/block.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

namespace detail {

// A file that nvcc compiles and one that it does not may both launch a functor of the same type.
// The tag keeps their instances apart.
struct CompiledForHost {};
struct CompiledForGpu {};
#ifdef __CUDACC__
using CompiledHere = CompiledForGpu;
#else
using CompiledHere = CompiledForHost;
#endif

// The errors of bad arguments, before anything is submitted.
GANTRY_API void check_parallel_for(std::int64_t n);
GANTRY_API void check_launch(const Stream& stream, const Grid& grid, const BlockSize& block);
// True for a simulated device. Throws: NotSupported for a GPU, unless `compiled_for_gpu`.
GANTRY_API bool runs_on_simulator(const char* op, const Stream& stream, bool compiled_for_gpu);
// Enqueues a task on a simulated stream.
GANTRY_API void submit_to_simulator(const Stream& stream, std::function<void()> task);
// Runs the threads of all blocks on the calling thread.
using BlockFunction = void (*)(const void* functor, Block& block);
GANTRY_API void run_blocks(const Grid& grid, const BlockSize& block, BlockFunction function,
                           const void* functor);
[[noreturn]] GANTRY_API void throw_launch_failed(const char* op, const Stream& stream, int code,
                                                 const char* name, const char* text);
[[noreturn]] GANTRY_API void throw_device_only(const char* op);

// Memory that a launch uses: checked before it, recorded behind it.
template <class T>
concept MemoryUses = requires(const T& uses, const char* op, const Stream& stream) {
  uses.check(op, stream);
  uses.record(stream);
};

struct NoUses {
  void check(const char*, const Stream&) const {}
  void record(const Stream&) const {}
};

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

template <class F>
constexpr void check_functor() {
  static_assert(std::is_trivially_copyable_v<F> || is_device_only<F> || is_wrapped_lambda<F>,
                "a functor is copied to the GPU byte by byte: let it hold pointers and numbers, no "
                "tensors");
  static_assert(sizeof(F) <= 4000, "a functor is a kernel's parameter: at most 4000 bytes");
}

#ifdef __CUDACC__

inline constexpr int kLoopThreads = 256;

template <class F>
__global__ void __launch_bounds__(kLoopThreads) parallel_for_kernel(std::int64_t n, const F functor) {
  const std::int64_t step = std::int64_t{gridDim.x} * kLoopThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kLoopThreads + threadIdx.x; i < n; i += step) {
    functor(i);
  }
}

// A block of up to kMost threads fits, whatever number of registers the functor needs.
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
  if (shared_bytes > (std::size_t{48} << 10)) {  // more must be asked for
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
  }
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw_launch_failed(op, stream, static_cast<int>(status), cudaGetErrorName(status),
                      cudaGetErrorString(status));
}

#endif

#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <class F>
void run_loop(std::int64_t n, const F& functor) {
  for (std::int64_t i = 0; i < n; ++i) functor(i);
}

#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <class F>
void run_thread(const void* functor, Block& block) {
  (*static_cast<const F*>(functor))(block);
}

template <class Compiled, class F>
void submit_loop(const Stream& stream, std::int64_t n, const F& functor) {
  if (runs_on_simulator("parallel_for", stream, std::is_same_v<Compiled, CompiledForGpu>)) {
    if constexpr (is_device_only<F>) {
      throw_device_only("parallel_for");
    } else {
      submit_to_simulator(stream, [n, functor] { run_loop(n, functor); });
    }
    return;
  }
#ifdef __CUDACC__
  constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;  // the loop covers more
  const std::int64_t blocks = (n - 1) / kLoopThreads + 1;
  launch_on_gpu("parallel_for", stream,
                dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)),
                dim3(kLoopThreads), 0, &parallel_for_kernel<F>, n, functor);
#endif
}

template <class Compiled, class F>
void submit_blocks(const Stream& stream, const Grid& grid, const BlockSize& block,
                   const F& functor) {
  if (runs_on_simulator("launch", stream, std::is_same_v<Compiled, CompiledForGpu>)) {
    if constexpr (is_device_only<F>) {
      throw_device_only("launch");
    } else {
      submit_to_simulator(stream, [grid, block, functor] {
        run_blocks(grid, block, &run_thread<F>, std::addressof(functor));
      });
    }
    return;
  }
#ifdef __CUDACC__
  const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                    static_cast<unsigned>(grid.z));
  const dim3 threads(static_cast<unsigned>(block.x), static_cast<unsigned>(block.y),
                     static_cast<unsigned>(block.z));
  if (block.x * block.y * block.z <= 256) {
    launch_on_gpu("launch", stream, blocks, threads, block.shared_bytes, &block_kernel<256, F>,
                  functor);
  } else {
    launch_on_gpu("launch", stream, blocks, threads, block.shared_bytes, &block_kernel<1024, F>,
                  functor);
  }
#endif
}

}  // namespace detail

/// Calls `functor(i)` for every i in [0, n), in any order, as work of `stream`.
///
/// One source serves both platforms. In a file that nvcc compiles, the functor's operator() is
/// GANTRY_HD and const; a GANTRY_HD lambda needs --extended-lambda. Another compiler serves
/// simulated devices only. The functor is copied byte by byte: it holds pointers and numbers.
///
/// `uses` names the memory: `parallel_for(stream, n, uses(a, b), f)`, see uses.hpp. Without it the
/// caller keeps the memory until the work is done.
///
/// Device/stream: the host does not block. In a capture of `stream` the call is captured. What the
/// functor throws on a simulated device becomes the stream's error.
/// Throws: InvalidArgument for n < 0; NotSupported for a GPU in a file that nvcc did not compile,
/// and for a __device__ lambda on a simulated device; CudaError if the launch fails.
template <detail::MemoryUses Uses, class F, class Compiled = detail::CompiledHere>
void parallel_for(const Stream& stream, std::int64_t n, const Uses& uses, F functor) {
  detail::check_functor<F>();
  detail::check_parallel_for(n);
  uses.check("parallel_for", stream);
  if (n == 0) return;
  detail::submit_loop<Compiled>(stream, n, functor);
  uses.record(stream);
}
template <class F, class Compiled = detail::CompiledHere>
void parallel_for(const Stream& stream, std::int64_t n, F functor) {
  parallel_for<detail::NoUses, F, Compiled>(stream, n, detail::NoUses{}, functor);
}

/// Calls `functor(block)` in every thread of `grid` blocks of `block` threads, as work of `stream`.
///
/// `Block` tells which thread it is, and has a barrier and shared memory. Compilers, functors,
/// `uses`, captures and errors are those of parallel_for.
///
/// Device/stream: the host does not block. An empty grid launches nothing.
/// Throws: InvalidArgument for a grid or block beyond its limits, or too much shared memory;
/// NotSupported and CudaError as parallel_for.
template <detail::MemoryUses Uses, class F, class Compiled = detail::CompiledHere>
void launch(const Stream& stream, Grid grid, BlockSize block, const Uses& uses, F functor) {
  detail::check_functor<F>();
  detail::check_launch(stream, grid, block);
  uses.check("launch", stream);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  detail::submit_blocks<Compiled>(stream, grid, block, functor);
  uses.record(stream);
}
template <class F, class Compiled = detail::CompiledHere>
void launch(const Stream& stream, Grid grid, BlockSize block, F functor) {
  launch<detail::NoUses, F, Compiled>(stream, grid, block, detail::NoUses{}, functor);
}

}  // namespace gantry
