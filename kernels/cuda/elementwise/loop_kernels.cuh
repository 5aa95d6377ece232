// The kernels of an elementwise loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cuda/elementwise/offset_calculator.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {
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

// Packs along the innermost dim. The plan counts them: its inner size is a number of packs. Bit k
// of `dense` tells whether input k has inner stride 1, else it has 0.
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

}  // namespace gantry::kernels::cuda
