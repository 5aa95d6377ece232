// Reductions of few rows on the GPU: one thread has all elements of its outputs.
#pragma once

#include "kernels/cuda/reductions/reduce_in_thread.cuh"
#include "kernels/cuda/reductions/row_ring.cuh"

namespace gantry::kernels::cuda {

namespace {

// Columns that a thread reads at once, where they form packs: as many as fit into one access, and
// their states into registers.
template <class In, class R>
constexpr int few_pack() {
  constexpr int kAccess = 16 / static_cast<int>(sizeof(In));
  constexpr int kStates = 32 / static_cast<int>(sizeof(typename R::State));
  constexpr int kMost = kAccess < kStates ? kAccess : kStates;
  if (kHasOnly<In, R>) return kMost < 1 ? 1 : kMost;
  return sizeof(In) >= 4 ? 2 : kHasState<R> ? 1 : 4;
}
template <class In, class R>
constexpr int kFewPack = few_pack<In, R>();
// Blocks that a multiprocessor is to hold; 0 leaves it to the compiler.
template <class In, class R, int V>
constexpr int kFewBlocks = kBlocksOf<R, kThreads, sizeof(typename R::State) * V >= 8 ? 80 : 64>;
template <class R, int V>
constexpr int kFewPackBlocks = sizeof(typename R::State) * V <= 16 ? 3 : 2;
static_assert(kThreads == kRingThreads);

// Rows of a subtree, and the row in place `i` of the order in which a tree combines neighbours.
constexpr int kSubtree = 8;
__device__ constexpr int subtree_row(int i) { return (i & 1) << 2 | (i & 2) | i >> 2; }

// As reduce_once_in_thread(), with a ring. `column` has `count` rows, which are `stride` apart.
template <class Acc, class In, int V, class R, class Combine>
__device__ void reduce_once_with_ring(const R& reducer, StoredPack<In, V>* slots, const In* column,
                                      std::int64_t stride, int count, int bits,
                                      const Combine& combine, Acc (&results)[V]) {
  using Vector = StoredPack<In, V>;
  constexpr int kGroup = kSubtree / kRingGroups;
  static_assert(kGroup == 2);
  Acc levels[kTreeLevels<kSubtree>][V];
  const auto fetch = [&](int first, int i) {
    const int at = first + (subtree_row(i) << bits);
    if (at < count) copy_async(slots + i * kRingThreads, column + at * stride);
  };
#pragma unroll
  for (int i = 0; i < kSubtree; ++i) {
    fetch(0, i);
    if (i % kGroup == kGroup - 1) commit_copies();
  }
#pragma unroll 1
  for (int subtree = 0; subtree >> bits == 0; ++subtree) {
    const int first = reversed(subtree, bits);
    const int next = (subtree + 1) >> bits == 0 ? reversed(subtree + 1, bits) : count;
    Acc pair[V];     // the last pair that waits for its neighbour
    Acc quarter[V];  // the first half of the subtree
#pragma unroll
    for (int i = 0; i < kSubtree; i += kGroup) {
      await_copies();
      const Vector even = slots[i * kRingThreads];
      const Vector odd = slots[(i + 1) * kRingThreads];
      const bool has_even = first + (subtree_row(i) << bits) < count;
      const bool has_odd = first + (subtree_row(i + 1) << bits) < count;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const Acc own = combine(has_even ? reducer.only(even.values[v]) : reducer.neutral(),
                                has_odd ? reducer.only(odd.values[v]) : reducer.neutral());
        if (i % 4 == 0) {
          pair[v] = own;
        } else if (i < 4) {
          quarter[v] = combine(pair[v], own);
        } else {
          results[v] =
              push_subtree(subtree, v, levels, combine(quarter[v], combine(pair[v], own)), combine);
        }
      }
      fetch(next, i);
      fetch(next, i + 1);
      commit_copies();
    }
  }
}

// One thread reduces V neighbouring outputs of at most kAccumulators rows; bits as in
// reduce_in_thread(). Packs are aligned.
template <class In, class Acc, class R, int V>
__global__ void __launch_bounds__(kThreads, kFewPackBlocks<R, V>)
    reduce_few_packs(const __grid_constant__ ReducePlan plan, const R reducer, int bits) {
  using Vector = StoredPack<In, V>;
  // The ring, then the results, which the threads write side by side.
  constexpr std::size_t kRingBytes = sizeof(Vector) * kSubtree * kThreads;
  constexpr std::size_t kResultBytes = sizeof(Acc) * V * kThreads;
  __shared__ __align__(
      16) unsigned char memory[kRingBytes > kResultBytes ? kRingBytes : kResultBytes];
  auto* slots = reinterpret_cast<Vector*>(memory) + threadIdx.x;
  auto* shared = reinterpret_cast<Acc*>(memory);
  const int count = static_cast<int>(plan.length);
  const std::int64_t stride = plan.reduced.strides[0];
  constexpr int kTile = kThreads * V;
  for (std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kTile; tile < plan.outputs;
       tile += static_cast<std::int64_t>(gridDim.x) * kTile) {
    const std::int64_t first = tile + static_cast<int>(threadIdx.x) * V;
    const bool is_present = first < plan.outputs;
    const In* column = static_cast<const In*>(plan.in);
    if (is_present) column += near_offset(plan.kept, first);
    const int rows = is_present ? count : 0;
    Acc results[V];
    const auto combine = [&](const Acc& a, const Acc& b) { return reducer.combine(a, b); };
    if constexpr (kHasState<R>) {
      if (count == kSubtree << bits) {
        reduce_once_with_ring(
            reducer, slots, column, stride, rows, bits,
            [&](const Acc& a, const Acc& b) { return reducer.combine_equal(a, b); }, results);
      } else {
        reduce_once_with_ring(reducer, slots, column, stride, rows, bits, combine, results);
      }
    } else {
      reduce_once_with_ring(reducer, slots, column, stride, rows, bits, combine, results);
    }
    __syncthreads();  // every thread has read its part of the ring
#pragma unroll
    for (int v = 0; v < V; ++v) shared[threadIdx.x * V + v] = results[v];
    __syncthreads();
#pragma unroll 1
    for (int at = static_cast<int>(threadIdx.x); at < kTile && tile + at < plan.outputs;
         at += kThreads) {
      write_output<R>(plan, tile + at, reducer.finish(shared[at]));
    }
    __syncthreads();  // every thread has read its results
  }
}

// One thread reduces V neighbouring outputs of at most a chunk; bits as in reduce_in_thread().
template <class In, class Acc, class R, int V>
__global__ void __launch_bounds__(kThreads, kFewBlocks<In, R, V>)
    reduce_few(const __grid_constant__ ReducePlan plan, const R reducer, int bits) {
  using Vector = StoredPack<In, V>;
  const int count = static_cast<int>(plan.length);
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t pack = first_index(); pack * V < plan.outputs; pack += index_step()) {
    const In* column = static_cast<const In*>(plan.in) + distant_offset(plan.kept, pack * V);
    Acc results[V];
    const auto load = [&](int at) {
      return *reinterpret_cast<const Vector*>(column + at * stride);
    };
    if constexpr (kHasOnly<In, R>) {
      reduce_once_in_thread<kSubtree, In, V>(reducer, count, bits, load, results);
    } else {
      reduce_in_thread<kSubtree, In, V>(
          reducer, count, count, bits, load, [](int at, int) { return at; }, results);
    }
#pragma unroll
    for (int v = 0; v < V; ++v) write_output<R>(plan, pack * V + v, reducer.finish(results[v]));
  }
}

}  // namespace

}  // namespace gantry::kernels::cuda
