#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/input.hpp"
#include "kernels/strided.hpp"

namespace gantry::kernels::cuda {

// Throws a CudaError with the names of the kernel, the current device and the stream.
[[noreturn]] void throw_launch_error(const char* kernel, void* stream, cudaError_t status);

// Launches `kernel` with pointers to its arguments, which have exactly the types of its parameters.
// Not a template, so that callers of many kernels stay small.
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

// Elements per vector access of a thread: 16 bytes of the widest operand, but 4 to 8 elements.
template <class... T>
constexpr int pack_size() {
  std::size_t widest = 1;
  ((widest = sizeof(T) > widest ? sizeof(T) : widest), ...);
  const std::size_t fitting = 16 / widest;
  return static_cast<int>(fitting < 4 ? 4 : fitting > 8 ? 8 : fitting);
}

template <class Source>
struct StoredTypeOf {
  using type = std::uint8_t;  // a Counter occupies no memory
};
template <class T>
struct StoredTypeOf<ElementSource<T>> {
  using type = T;
};

// Lets a random operation look up its position, if it is a captured one.
template <class Op>
__device__ void resolve(Op& op) {
  if constexpr (requires { op.at.resolved(); }) op.at = op.at.resolved();
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
  resolve(op);
  for (std::int64_t i = first_index(); i < n; i += index_step()) {
    std::int64_t offsets[N];
    calculator.offsets(static_cast<std::uint32_t>(i), offsets);
    store_one(op, out, offsets, std::index_sequence_for<Sources...>{}, sources...);
  }
}

template <class Out, class Op>
__global__ void __launch_bounds__(kThreads)
    blocks_kernel(std::int64_t n, bool aligned, Op op, Out* out) {
  constexpr int V = Op::kSize;
  resolve(op);
  const std::int64_t blocks = (n + V - 1) / V;
  for (std::int64_t b = first_index(); b < blocks; b += index_step()) {
    const auto block = op.block(static_cast<std::uint64_t>(b));
    StoredPack<Out, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) result.values[i] = convert<Out>(block.values[i]);
    if (aligned && (b + 1) * V <= n) {
      *reinterpret_cast<StoredPack<Out, V>*>(out + b * V) = result;
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        if (b * V + i < n) out[b * V + i] = result.values[i];
      }
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
    for (const PlanPiece<N>& piece : pieces_of(plan)) {
      run_strided(name, op, data + piece.offsets[0], piece, std::index_sequence_for<Sources...>{},
                  inputs.source...);
    }
  }

  template <class Out, class Op>
  void run_blocks(const char* name, const Op& op, const TensorRef& out) const {
    if (!out.is_contiguous()) {
      run<Out>(name, op, out, index_input(out));
      return;
    }
    const std::int64_t n = out.numel();
    const bool aligned =
        reinterpret_cast<std::uintptr_t>(out.data) % alignof(StoredPack<Out, Op::kSize>) == 0;
    auto* data = static_cast<Out*>(out.data);
    void* arguments[] = {address(n), address(aligned), address(op), address(data)};
    launch_untyped(name, stream_, blocks_for((n + Op::kSize - 1) / Op::kSize), kThreads,
                   kernel_address(detail::blocks_kernel<Out, Op>), arguments);
  }

 private:
  template <int V, int N, class Source>
  static bool is_dense(const StridedPlan<N>& plan, int k, const Source& source) {
    if constexpr (!std::is_same_v<Source, Counter>) {
      if (source.is_number) return true;
    }
    return plan.is_dense(k) && source.is_aligned(V);
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
