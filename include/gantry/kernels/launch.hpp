#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include <gantry/core/export.hpp>
#include <gantry/kernels/block.hpp>
#include <gantry/kernels/gpu_launch.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

namespace detail {

// Throw InvalidArgument for bad arguments.
GANTRY_API void check_parallel_for(std::int64_t n);
GANTRY_API void check_launch(const Stream& stream, const Grid& grid, const BlockSize& block);
// True for a simulated device. Throws: NotSupported for a GPU, unless `compiled_for_gpu`.
GANTRY_API bool runs_on_simulator(const char* op, const Stream& stream, bool compiled_for_gpu);
// Enqueues a task on a simulated stream. `waits`: it may wait for kernels of other ranks.
GANTRY_API void submit_to_simulator(const Stream& stream, std::function<void()> task, bool waits);
// True if a kernel whose memory is not named may wait for other ranks: a window is open.
GANTRY_API bool any_kernel_may_wait() noexcept;
// Runs the threads of all blocks on the calling thread.
using BlockFunction = void (*)(const void* functor, Block& block);
GANTRY_API void run_blocks(const Grid& grid, const BlockSize& block, BlockFunction function,
                           const void* functor);
[[noreturn]] GANTRY_API void throw_device_only(const char* op);

// The memory that a launch uses. check() runs before the launch, record() after it.
// waits_for_peers(): the kernel may wait for kernels of other ranks through this memory. Every type
// of uses says so, because a launch that does not know could block the thread that serves the peer.
template <class T>
concept MemoryUses = requires(const T& uses, const char* op, const Stream& stream) {
  uses.check(op, stream);
  uses.record(stream);
  { uses.waits_for_peers() } -> std::same_as<bool>;
  { uses.str() } -> std::convertible_to<std::string>;
};

struct NoUses {
  void check(const char*, const Stream&) const {}
  void record(const Stream&) const {}
  bool waits_for_peers() const { return any_kernel_may_wait(); }
  std::string str() const { return {}; }
};

// Text of the compiler that contains the name of F.
template <class F>
constexpr const char* text_with_name() {
  return __PRETTY_FUNCTION__;
}

// The call of parallel_for() or launch() in traces and profiler ranges.
class GANTRY_API ObservedLaunch {
 public:
  // `functor`: text_with_name() of its type.
  template <class Uses>
  ObservedLaunch(const char* op, const char* functor, const Stream& stream, const Uses& uses) {
    if (is_observed()) begin(op, functor, stream, uses.str());
  }
  ~ObservedLaunch() {
    if (call_ != nullptr) end();
  }
  ObservedLaunch(const ObservedLaunch&) = delete;
  ObservedLaunch& operator=(const ObservedLaunch&) = delete;

 private:
  static bool is_observed() noexcept;
  void begin(const char* op, const char* functor, const Stream& stream,
             std::string operands) noexcept;
  void end() noexcept;

  void* call_ = nullptr;
};

template <class F>
constexpr void check_functor() {
  static_assert(std::is_trivially_copyable_v<F> || is_device_only<F> || is_wrapped_lambda<F>,
                "a functor is copied to the GPU byte by byte: let it hold pointers and numbers, no "
                "tensors");
  static_assert(sizeof(F) <= 4000, "a functor is a kernel's parameter: at most 4000 bytes");
}

GANTRY_NO_EXEC_CHECK
template <class F>
void run_loop(std::int64_t n, const F& functor) {
  for (std::int64_t i = 0; i < n; ++i) functor(i);
}

GANTRY_NO_EXEC_CHECK
template <class F>
void run_thread(const void* functor, Block& block) {
  (*static_cast<const F*>(functor))(block);
}

template <class Compiled, class F>
void submit_loop(const Stream& stream, std::int64_t n, bool waits, const F& functor) {
  if (runs_on_simulator("parallel_for", stream, std::is_same_v<Compiled, CompiledForGpu>)) {
    if constexpr (is_device_only<F>) {
      throw_device_only("parallel_for");
    } else {
      submit_to_simulator(
          stream, [n, functor] { run_loop(n, functor); }, waits);
    }
    return;
  }
  launch_loop<Compiled>(stream, n, functor);
}

template <class Compiled, class F>
void submit_blocks(const Stream& stream, const Grid& grid, const BlockSize& block, bool waits,
                   const F& functor) {
  if (runs_on_simulator("launch", stream, std::is_same_v<Compiled, CompiledForGpu>)) {
    if constexpr (is_device_only<F>) {
      throw_device_only("launch");
    } else {
      submit_to_simulator(
          stream,
          [grid, block, functor] {
            run_blocks(grid, block, &run_thread<F>, std::addressof(functor));
          },
          waits);
    }
    return;
  }
  launch_blocks<Compiled>(stream, grid, block, functor);
}

}  // namespace detail

/// Calls `functor(i)` for every i in [0, n), in any order, as work on `stream`.
///
/// The same source runs on GPUs and on simulated devices. In a file that nvcc compiles, the
/// functor's operator() is GANTRY_HD and const; a GANTRY_HD lambda needs --extended-lambda. A file
/// that another compiler compiles runs on simulated devices only. The functor is copied byte by
/// byte, so it holds pointers and numbers.
///
/// `uses` names the tensors and windows: `parallel_for(stream, n, uses(a, b), f)`, see uses.hpp.
/// Without it the caller keeps the memory until the work is complete.
///
/// A functor may wait for kernels of other ranks through a Window that `uses` names. On simulated
/// devices such a launch returns at once, also where launches block. Without `uses` every launch
/// counts as one that waits while the process has a window.
///
/// Traces name the launch's work on simulated devices by the type of `functor`.
///
/// Device/stream: the host does not block. If `stream` is being captured, the call is captured. An
/// exception of the functor on a simulated device becomes the stream's error.
/// Throws: InvalidArgument for n < 0; NotSupported for a GPU in a file that nvcc did not compile,
/// and for a __device__ lambda on a simulated device; CudaError if the launch fails.
/// @code
/// const Tensor x = ones({64}, "cuda:0");
/// const Stream stream = Stream::current("cuda:0");
/// parallel_for(stream, x.numel(), uses().writes(x), [data = x.data_ptr<float>()](std::int64_t i) {
///   data[i] *= 2;
/// });
/// @endcode
/// @since 0.3
template <detail::MemoryUses Uses, class F, class Compiled = detail::CompiledHere>
void parallel_for(const Stream& stream, std::int64_t n, const Uses& uses, F functor) {
  detail::check_functor<F>();
  detail::check_parallel_for(n);
  const detail::ObservedLaunch observed("parallel_for", detail::text_with_name<F>(), stream, uses);
  uses.check("parallel_for", stream);
  if (n == 0) return;
  detail::submit_loop<Compiled>(stream, n, uses.waits_for_peers(), functor);
  uses.record(stream);
}
template <class F, class Compiled = detail::CompiledHere>
void parallel_for(const Stream& stream, std::int64_t n, F functor) {
  parallel_for<detail::NoUses, F, Compiled>(stream, n, detail::NoUses{}, functor);
}

/// Calls `functor(block)` in every thread of `grid` blocks of `block` threads, as work on `stream`.
///
/// The functor's argument, a Block, has the thread's position, a barrier and shared memory.
/// Compilers, functors, `uses`, captures and errors are those of parallel_for.
///
/// Device/stream: the host does not block. An empty grid launches nothing.
/// Throws: InvalidArgument for a grid or block beyond its limits, or too much shared memory;
/// NotSupported and CudaError as parallel_for.
/// @code
/// const Tensor x = ones({4, 32}, "cuda:0");
/// const Stream stream = Stream::current("cuda:0");
/// launch(stream, 4, 32, uses().writes(x), [data = x.data_ptr<float>()](Block& block) {
///   data[block.flat_index()] = static_cast<float>(block.index().x);
/// });
/// @endcode
/// @since 0.3
template <detail::MemoryUses Uses, class F, class Compiled = detail::CompiledHere>
void launch(const Stream& stream, Grid grid, BlockSize block, const Uses& uses, F functor) {
  detail::check_functor<F>();
  detail::check_launch(stream, grid, block);
  const detail::ObservedLaunch observed("launch", detail::text_with_name<F>(), stream, uses);
  uses.check("launch", stream);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  detail::submit_blocks<Compiled>(stream, grid, block, uses.waits_for_peers(), functor);
  uses.record(stream);
}
template <class F, class Compiled = detail::CompiledHere>
void launch(const Stream& stream, Grid grid, BlockSize block, F functor) {
  launch<detail::NoUses, F, Compiled>(stream, grid, block, detail::NoUses{}, functor);
}

}  // namespace gantry
