#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/cuda/overlap_limit.hpp"
#include "kernels/input.hpp"
#include "kernels/strided.hpp"

namespace gantry::kernels::cuda {

// Throws a CudaError with the names of the kernel, the current device and the stream.
[[noreturn]] void throw_launch_error(const char* kernel, void* stream, cudaError_t status);

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
  const cudaError_t status =
      cudaLaunchKernelEx(&config, kernel, std::forward<Actual>(arguments)...);
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

// Converts a linear index to the operands' offsets, for plans of fewer than 2^31 elements.
template <int N>
struct OffsetCalculator {
  std::int32_t ndim = 0;
  FastDivisor sizes[kMaxDims];
  std::int64_t strides[kMaxDims][N];

  OffsetCalculator() = default;
  explicit OffsetCalculator(const StridedPlan<N>& plan) : ndim(plan.ndim) {
    for (int dim = 0; dim < kMaxDims; ++dim) {
      if (dim < ndim) sizes[dim] = FastDivisor(static_cast<std::uint32_t>(plan.sizes[dim]));
      for (int k = 0; k < N; ++k) strides[dim][k] = plan.strides[dim][k];
    }
  }

  __device__ void offsets(std::uint32_t index, std::int64_t (&result)[N]) const {
    for (int k = 0; k < N; ++k) result[k] = 0;
#pragma unroll
    for (int dim = 0; dim < kMaxDims; ++dim) {
      if (dim == ndim - 1) {
        for (int k = 0; k < N; ++k) result[k] += static_cast<std::int64_t>(index) * strides[dim][k];
        return;
      }
      const std::uint32_t quotient = sizes[dim].divide(index);
      const std::uint32_t rest = index - quotient * sizes[dim].divisor;
      for (int k = 0; k < N; ++k) result[k] += static_cast<std::int64_t>(rest) * strides[dim][k];
      index = quotient;
    }
  }
};

namespace detail {

// Elements per vector access of a thread: 16 bytes of the narrowest operand, at least 4, but at
// most 64 bytes of the widest.
template <class... T>
constexpr int pack_size() {
  std::size_t widest = 1;
  std::size_t narrowest = 8;
  ((widest = sizeof(T) > widest ? sizeof(T) : widest), ...);
  ((narrowest = sizeof(T) < narrowest ? sizeof(T) : narrowest), ...);
  const std::size_t wanted = 16 / narrowest < 4 ? 4 : 16 / narrowest;
  return static_cast<int>(wanted * widest > 64 ? 64 / widest : wanted);
}

template <class Source>
struct StoredTypeOf {
  using type = std::uint32_t;  // a Counter occupies no memory and does not decide the size
};
template <class T>
struct StoredTypeOf<ElementSource<T>> {
  using type = T;
};

// A random operation of captured work: the position of its stream stands in device memory. A type
// of its own, so that other launches keep the round keys in the kernel's parameters.
template <class Op>
struct Replayed : Op {
  explicit Replayed(const Op& op) : Op(op) {}

  __device__ void resolve() { this->stream = this->stream.resolved(); }
};

template <class Op>
concept ReplayableOp = requires(const Op& op) {
  op.stream.is_replayed();
}
&&!requires(Op & op) { op.resolve(); };

template <class Op>
__device__ void resolve(Op& op) {
  if constexpr (requires { op.resolve(); }) op.resolve();
}

template <int V, class Out, class Op, class... Values>
__device__ void store_pack(const Op& op, Out* out, std::int64_t first,
                           const Pack<Values, V>&... packs) {
  StoredPack<Out, V> result;
#pragma unroll
  for (int i = 0; i < V; ++i) result.values[i] = convert<Out>(op(packs.values[i]...));
  *reinterpret_cast<StoredPack<Out, V>*>(out + first) = result;
}

template <int V, class Out, class Op, class... Sources>
__global__ void __launch_bounds__(kThreads)
    dense_kernel(std::int64_t n, Op op, Out* out, Sources... sources) {
  wait_for_previous();
  resolve(op);
  const std::int64_t packs = n / V;
  for (std::int64_t i = first_index(); i < packs; i += index_step()) {
    store_pack<V>(op, out, i * V, sources.template load_pack<V>(i * V)...);
  }
  const std::int64_t i = packs * V + first_index();
  if (i < n) out[i] = convert<Out>(op(sources.load(i)...));
}

template <class Out, class Op, int N, std::size_t... K, class... Sources>
__device__ void store_one(const Op& op, Out* out, const std::int64_t (&offsets)[N],
                          std::index_sequence<K...>, const Sources&... sources) {
  out[offsets[0]] = convert<Out>(op(sources.load(offsets[K + 1])...));
}

template <class Out, class Op, int N, class... Sources>
__global__ void __launch_bounds__(kThreads)
    strided_kernel(std::uint32_t n, const __grid_constant__ OffsetCalculator<N> calculator, Op op,
                   Out* out, Sources... sources) {
  wait_for_previous();
  resolve(op);
  for (std::int64_t i = first_index(); i < n; i += index_step()) {
    std::int64_t offsets[N];
    calculator.offsets(static_cast<std::uint32_t>(i), offsets);
    store_one(op, out, offsets, std::index_sequence_for<Sources...>{}, sources...);
  }
}

// Loads a pack of an operand whose inner stride is 1 (`is_dense`) or 0.
template <int V, class Source>
__device__ auto load_row_pack(const Source& source, std::int64_t offset, bool is_dense) {
  if (is_dense) return source.template load_pack<V>(offset);
  Pack<typename Source::Value, V> result;
  const auto value = source.load(offset);
#pragma unroll
  for (int i = 0; i < V; ++i) result.values[i] = value;
  return result;
}

// Packs along the innermost dim. The plan counts them: its inner size is that of packs. Bit k of
// `dense` tells whether input k has inner stride 1, else it has 0.
template <int V, class Out, class Op, int N, std::size_t... K, class... Sources>
__device__ void store_row_pack(const Op& op, Out* out, const std::int64_t (&offsets)[N],
                               std::uint32_t dense, std::index_sequence<K...>,
                               const Sources&... sources) {
  store_pack<V>(op, out, offsets[0],
                load_row_pack<V>(sources, offsets[K + 1], (dense >> K & 1) != 0)...);
}

template <int V, class Out, class Op, int N, class... Sources>
__global__ void __launch_bounds__(kThreads)
    row_packs_kernel(std::uint32_t packs, const __grid_constant__ OffsetCalculator<N> calculator,
                     std::uint32_t dense, Op op, Out* out, Sources... sources) {
  wait_for_previous();
  resolve(op);
  for (std::int64_t i = first_index(); i < packs; i += index_step()) {
    std::int64_t offsets[N];
    calculator.offsets(static_cast<std::uint32_t>(i), offsets);
    store_row_pack<V>(op, out, offsets, dense, std::index_sequence_for<Sources...>{}, sources...);
  }
}

// A thread writes the blocks [0, whole) as vectors, and the others element by element.
template <class Out, class Op>
__global__ void __launch_bounds__(kThreads)
    blocks_kernel(std::int64_t n, std::int64_t whole, Op op, Out* out) {
  constexpr int V = Op::kSize;
  wait_for_previous();
  resolve(op);
  std::int64_t b = first_index();
  for (; b < whole; b += index_step()) {
    const auto block = op.block(static_cast<std::uint64_t>(b));
    StoredPack<Out, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) result.values[i] = drawn<Out>(block.values[i]);
    *reinterpret_cast<StoredPack<Out, V>*>(out + b * V) = result;
  }
  for (; b * V < n; b += index_step()) {
    const auto block = op.block(static_cast<std::uint64_t>(b));
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (b * V + i < n) out[b * V + i] = drawn<Out>(block.values[i]);
    }
  }
}

template <class Out, class Op, class Source>
__global__ void __launch_bounds__(kThreads)
    drawn_kernel(std::int64_t n, std::int64_t whole, Op op, Out* out, Source source) {
  constexpr int V = Op::kSize;
  wait_for_previous();
  std::int64_t b = first_index();
  for (; b < whole; b += index_step()) {
    const auto draws = op.block(static_cast<std::uint64_t>(b));
    const auto pack = source.template load_pack<V>(b * V);
    StoredPack<Out, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) result.values[i] = op.result(draws.values[i], pack.values[i]);
    *reinterpret_cast<StoredPack<Out, V>*>(out + b * V) = result;
  }
  for (; b * V < n; b += index_step()) {
    const auto draws = op.block(static_cast<std::uint64_t>(b));
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (b * V + i < n) out[b * V + i] = op.result(draws.values[i], source.load(b * V + i));
    }
  }
}

}  // namespace detail

// The elementwise loop on the GPU, with the interface of host::Loop.
class Loop {
 public:
  explicit Loop(void* stream) : stream_(stream) {}

  template <class Out, class Op, class... Sources>
  void run(const char* name, const Op& op, const TensorRef& out,
           const Input<Sources>&... inputs) const {
    if constexpr (detail::ReplayableOp<Op>) {
      if (op.stream.is_replayed()) {
        run<Out>(name, detail::Replayed<Op>(op), out, inputs...);
        return;
      }
    }
    constexpr int N = 1 + sizeof...(Sources);
    const std::int64_t* const strides[N] = {out.strides, inputs.strides...};
    const StridedPlan<N> plan = make_plan<N>(out.ndim, out.sizes, strides);
    auto* data = static_cast<Out*>(out.data);
    if constexpr (!SlowOp<Op>) {
      constexpr int V = detail::pack_size<Out, typename detail::StoredTypeOf<Sources>::type...>();
      const bool aligned =
          reinterpret_cast<std::uintptr_t>(data) % alignof(StoredPack<Out, V>) == 0;
      int k = 0;
      if (plan.is_dense(0) && aligned && (is_dense<V>(plan, ++k, inputs.source) && ...)) {
        void* arguments[] = {address(plan.numel), address(op), address(data),
                             address(inputs.source)...};
        launch_untyped(name, stream_, blocks_for((plan.numel + V - 1) / V), kThreads,
                       kernel_address(detail::dense_kernel<V, Out, Op, Sources...>), arguments);
        return;
      }
    }
    if constexpr (!SlowOp<Op> && sizeof...(Sources) > 0) {
      constexpr int V = detail::pack_size<Out, typename detail::StoredTypeOf<Sources>::type...>();
      StridedPlan<N> packs = plan;
      std::uint32_t dense = 0;
      if (make_pack_plan<V>(packs, data, dense, std::index_sequence_for<Sources...>{},
                            inputs.source...)) {
        run_row_packs<V>(name, op, data, packs, dense, std::index_sequence_for<Sources...>{},
                         inputs.source...);
        return;
      }
    }
    for (const PlanPiece<N>& piece : pieces_of(plan)) {
      run_strided(name, op, data + piece.offsets[0], piece, std::index_sequence_for<Sources...>{},
                  inputs.source...);
    }
  }

  template <class Out, class Op>
  void run_blocks(const char* name, const Op& op, const TensorRef& out) const {
    if constexpr (detail::ReplayableOp<Op>) {
      if (op.stream.is_replayed()) {
        run_blocks<Out>(name, detail::Replayed<Op>(op), out);
        return;
      }
    }
    if (!out.is_contiguous()) {
      run<Out>(name, op, out, index_input(out));
      return;
    }
    auto* data = static_cast<Out*>(out.data);
    const std::int64_t n = out.numel();
    const std::int64_t whole = is_aligned<Op::kSize>(data) ? n / Op::kSize : 0;
    void* arguments[] = {address(n), address(whole), address(op), address(data)};
    launch_untyped(name, stream_, blocks_of_work<Op>(n), kThreads,
                   kernel_address(detail::blocks_kernel<Out, Op>), arguments);
  }

  template <class Out, class Op, class Source>
  void run_drawn(const char* name, const Op& op, const TensorRef& out, const Source& source) const {
    auto* data = static_cast<Out*>(out.data);
    const std::int64_t n = out.numel();
    const bool aligned = is_aligned<Op::kSize>(data) && source.is_aligned(Op::kSize);
    const std::int64_t whole = aligned ? n / Op::kSize : 0;
    void* arguments[] = {address(n), address(whole), address(op), address(data), address(source)};
    launch_untyped(name, stream_, blocks_of_work<Op>(n), kThreads,
                   kernel_address(detail::drawn_kernel<Out, Op, Source>), arguments);
  }

 private:
  template <int V, class Out>
  static bool is_aligned(const Out* data) {
    return reinterpret_cast<std::uintptr_t>(data) % alignof(StoredPack<Out, V>) == 0;
  }

  // The grid for n elements in blocks of Op::kSize. A thread computes a few of them, which share
  // the preparation.
  template <class Op>
  static unsigned blocks_of_work(std::int64_t n) {
    constexpr std::int64_t kPerThread = 4 * Op::kSize;
    return blocks_for((n + kPerThread - 1) / kPerThread);
  }

  template <int V, int N, class Source>
  static bool is_dense(const StridedPlan<N>& plan, int k, const Source& source) {
    if constexpr (!std::is_same_v<Source, Counter>) {
      if (source.is_number) return true;
    }
    return plan.is_dense(k) && source.is_aligned(V);
  }

  // Makes `plan` count packs of V elements along its inner dim and returns true, if every pack can
  // be one access.
  template <int V, class Out, int N, std::size_t... K, class... Sources>
  static bool make_pack_plan(StridedPlan<N>& plan, const Out* out, std::uint32_t& dense,
                             std::index_sequence<K...>, const Sources&... sources) {
    if (plan.strides[0][0] != 1 || plan.sizes[0] % V != 0 || !is_aligned<V>(out) ||
        plan.numel / V >= std::int64_t{1} << 31 || !has_pack_strides<V>(plan, 0)) {
      return false;
    }
    const bool fits =
        ((plan.strides[0][K + 1] == 0 || (plan.strides[0][K + 1] == 1 && sources.is_aligned(V) &&
                                          has_pack_strides<V>(plan, K + 1))) &&
         ...);
    if (!fits) return false;
    ((dense |= plan.strides[0][K + 1] == 1 ? 1u << K : 0u), ...);
    plan.sizes[0] /= V;
    plan.numel /= V;
    for (int k = 0; k < N; ++k) plan.strides[0][k] *= V;
    return true;
  }

  // True if operand k begins each row on a multiple of V elements.
  template <int V, int N>
  static bool has_pack_strides(const StridedPlan<N>& plan, std::size_t k) {
    for (int dim = 1; dim < plan.ndim; ++dim) {
      if (plan.strides[dim][k] % V != 0) return false;
    }
    return true;
  }

  template <int V, class Out, class Op, int N, std::size_t... K, class... Sources>
  void run_row_packs(const char* name, const Op& op, Out* out, const StridedPlan<N>& plan,
                     std::uint32_t dense, std::index_sequence<K...>,
                     const Sources&... sources) const {
    const auto packs = static_cast<std::uint32_t>(plan.numel);
    const OffsetCalculator<N> calculator(plan);
    void* arguments[] = {address(packs), address(calculator), address(dense),
                         address(op),    address(out),        address(sources)...};
    launch_untyped(name, stream_, blocks_for(packs), kThreads,
                   kernel_address(detail::row_packs_kernel<V, Out, Op, N, Sources...>), arguments);
  }

  template <class Out, class Op, int N, std::size_t... K, class... Sources>
  void run_strided(const char* name, const Op& op, Out* out, const PlanPiece<N>& piece,
                   std::index_sequence<K...>, const Sources&... sources) const {
    const auto n = static_cast<std::uint32_t>(piece.plan.numel);
    const OffsetCalculator<N> calculator(piece.plan);
    [[maybe_unused]] const std::tuple<Sources...> moved(advanced(sources, piece.offsets[K + 1])...);
    void* arguments[] = {address(n), address(calculator), address(op), address(out),
                         address(std::get<K>(moved))...};
    launch_untyped(name, stream_, blocks_for(n), kThreads,
                   kernel_address(detail::strided_kernel<Out, Op, N, Sources...>), arguments);
  }

  template <class T>
  static void* address(const T& value) {
    return const_cast<void*>(static_cast<const void*>(&value));
  }
  template <class... Parameters>
  static const void* kernel_address(void (*kernel)(Parameters...)) {
    return reinterpret_cast<const void*>(kernel);
  }

  template <class Source>
  static Source advanced(Source source, std::int64_t offset) {
    source.advance(offset);
    return source;
  }

  void* stream_;
};

}  // namespace gantry::kernels::cuda
