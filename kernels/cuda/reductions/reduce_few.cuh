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
  return kMost < 1 ? 1 : kMost;
}
template <class In, class R>
constexpr int kFewPack = few_pack<In, R>();
// Columns of a thread where they form no packs: elements of 16 bits have a register each. States of
// several numbers leave room for one.
template <class In, class R>
constexpr int kFewColumns = kHasLargeState<R>     ? 1
                            : kFewPack<In, R> < 4 ? kFewPack<In, R>
                                                  : 4;
template <class R, int V>
constexpr int kFewPackBlocks = sizeof(typename R::State) * V <= 16 ? 3 : 2;
static_assert(kThreads == kRingThreads);
// True if R combines states of constant numbers of elements.
template <class R>
constexpr bool kHasSizedStates = requires(const R& reducer, typename R::State state) {
  reducer.template combine_sized<1, 1>(state, state);
};

// Rows of a subtree, and the row in place `i` of the order in which a tree combines neighbours.
constexpr int kSubtree = 8;
__device__ constexpr int subtree_row(int i) { return (i & 1) << 2 | (i & 2) | i >> 2; }

// The tree over the rows kRow, kRow + kStep, … of kRows, lane by lane: state(i, v) is row i's.
template <int kRows, int kRow, int kStep, class R, class Acc, int V, class State>
__device__ void combine_rows(const R& reducer, const State& state, Acc (&results)[V]) {
  constexpr int kOwn = (kRows - kRow + 2 * kStep - 1) / (2 * kStep);
  constexpr int kOthers = (kRows - kRow + kStep - 1) / kStep - kOwn;
  if constexpr (kOthers == 0) {
#pragma unroll
    for (int v = 0; v < V; ++v) results[v] = state(kRow, v);
  } else {
    Acc others[V];
    combine_rows<kRows, kRow, 2 * kStep>(reducer, state, results);
    combine_rows<kRows, kRow + kStep, 2 * kStep>(reducer, state, others);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      results[v] = reducer.template combine_sized<kOwn, kOthers>(results[v], others[v]);
    }
  }
}

// As combine_rows(), over the first `rows` of kMost rows. All threads of a block have the same.
template <int kMost, class R, class Acc, int V, class State>
__device__ void combine_first_rows(const R& reducer, int rows, const State& state,
                                   Acc (&results)[V]) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return combine_first_rows<kMost - 1>(reducer, rows, state, results);
  }
  combine_rows<kMost, 0, 1>(reducer, state, results);
}

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

// One thread reduces V outputs of at most kSubtree rows, which are all under way at once. With a
// kStep of 1 they form aligned packs; else they are kThreads apart, so that columns without packs
// have as many bytes under way.
template <class In, class Acc, class R, int V, int kStep>
__global__ void __launch_bounds__(kThreads, kBlocksOf<R, kThreads, 80>)
    reduce_few_rows(const __grid_constant__ ReducePlan plan, const R reducer) {
  static_assert(kStep == 1 || kStep == kThreads);
  using Vector = StoredPack<In, V>;
  const int count = static_cast<int>(plan.length);
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t pack = first_index();; pack += index_step()) {
    const std::int64_t first =
        kStep == 1 ? pack * V : pack / kThreads * (V * kThreads) + threadIdx.x;
    if (first >= plan.outputs) return;
    const std::int64_t left = plan.outputs - first;
    Vector rows[kSubtree] = {};  // otherwise the compiler keeps the values of the last turn
    if constexpr (kStep == 1) {
      const In* column = static_cast<const In*>(plan.in) + near_offset(plan.kept, first);
#pragma unroll
      for (int i = 0; i < kSubtree; ++i) {
        if (i < count) rows[i] = *reinterpret_cast<const Vector*>(column + i * stride);
      }
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        // Behind the end the first output is reduced again, and not written.
        const std::int64_t output = v * kStep < left ? first + v * kStep : first;
        const In* column = static_cast<const In*>(plan.in) + near_offset(plan.kept, output);
#pragma unroll
        for (int i = 0; i < kSubtree; ++i) {
          if (i < count) rows[i].values[v] = column[i * stride];
        }
      }
    }
    Acc results[V];
    if constexpr (kHasSizedStates<R>) {
      combine_first_rows<kSubtree>(
          reducer, count, [&](int i, int v) { return reducer.only(rows[i].values[v]); }, results);
      write_outputs<R, In, kStep>(plan, first, results);
      continue;
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      Acc states[kSubtree];
#pragma unroll
      for (int i = 0; i < kSubtree; ++i) {
        if constexpr (!kHasLargeState<R>) states[i] = reducer.neutral();  // as `rows`
        if (i < count) states[i] = state_of(reducer, rows[i].values[v], i);
      }
#pragma unroll
      for (int half = kSubtree / 2; half > 0; half /= 2) {
#pragma unroll
        for (int i = 0; i < half; ++i) {
          if (i + half < count) states[i] = reducer.combine(states[i], states[i + half]);
        }
      }
      results[v] = reducer.finish(states[0]);
    }
    write_outputs<R, In, kStep>(plan, first, results);
  }
}

// One thread reduces V neighbouring outputs of at most kAccumulators rows; bits as in
// reduce_in_thread(). Packs are aligned.
template <class In, class Acc, class R, int V>
__global__ void __launch_bounds__(kThreads, kFewPackBlocks<R, V>)
    reduce_few_packs(const __grid_constant__ ReducePlan plan, const R reducer, int bits) {
  using Vector = StoredPack<In, V>;
  __shared__ Vector ring[kSubtree * kThreads];
  Vector* const slots = ring + threadIdx.x;
  const int count = static_cast<int>(plan.length);
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t pack = first_index(); pack * V < plan.outputs; pack += index_step()) {
    const In* column = static_cast<const In*>(plan.in) + near_offset(plan.kept, pack * V);
    Acc results[V];
    reduce_once_with_ring(
        reducer, slots, column, stride, count, bits,
        [&](const Acc& a, const Acc& b) { return reducer.combine(a, b); }, results);
#pragma unroll
    for (int v = 0; v < V; ++v) results[v] = reducer.finish(results[v]);
    write_outputs<R, In>(plan, pack * V, results);
  }
}

}  // namespace

}  // namespace gantry::kernels::cuda
