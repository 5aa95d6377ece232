// Reductions of few rows of many columns to states of several numbers on the GPU: one thread has
// all elements of its outputs.
//
// Work on states takes longer than reads. A thread has a subtree of the tree over its rows at a
// time. The code of a subtree has a constant number of rows: the shares of its parts, which are
// quotients of numbers of elements, are constants, too.
#pragma once

#include "kernels/cuda/reductions/reduce_kernels.cuh"

namespace gantry::kernels::cuda {

namespace {

// One thread reduces V outputs of at most kAccumulators rows. The rows of the next subtree are
// under way while it combines those of one. bits as in reduce_in_thread(), kStep as in
// reduce_few_rows().
template <class In, class Acc, class R, int V, int kStep>
__global__ void __launch_bounds__(kThreads, sizeof(In) * V <= 4 ? 3 : 2)
    reduce_few_states(const __grid_constant__ ReducePlan plan, const R reducer, int bits) {
  static_assert(kStep == 1 || kStep == kThreads);
  using Vector = StoredPack<In, V>;
  constexpr int kColumns = kStep == 1 ? 1 : V;
  const int count = static_cast<int>(plan.length);
  const std::int64_t stride = plan.reduced.strides[0];
  const std::int64_t step = stride << bits;
  const auto rows_from = [&](int from) { return (count - from + (1 << bits) - 1) >> bits; };
  for (std::int64_t pack = first_index();; pack += index_step()) {
    const std::int64_t first =
        kStep == 1 ? pack * V : pack / kThreads * (V * kThreads) + threadIdx.x;
    if (first >= plan.outputs) return;
    const In* columns[kColumns];
#pragma unroll
    for (int v = 0; v < kColumns; ++v) {
      // Behind the end the first output is reduced again, and not written.
      const std::int64_t output = first + v * kStep < plan.outputs ? first + v * kStep : first;
      columns[v] = static_cast<const In*>(plan.in) + near_offset(plan.kept, output);
    }
    Vector next[kSubtree] = {};
    const auto fetch = [&](int from, int rows) {
#pragma unroll
      for (int v = 0; v < kColumns; ++v) {
        const In* at = columns[v] + from * stride;
#pragma unroll
        for (int i = 0; i < kSubtree; ++i, at += step) {
          if (i >= rows) continue;
          if constexpr (kStep == 1) {
            next[i] = *reinterpret_cast<const Vector*>(at);
          } else {
            next[i].values[v] = *at;
          }
        }
      }
    };
    int rows = rows_from(0);
    fetch(0, rows);
    Acc levels[kTreeLevels<kSubtree>][V];
    Acc results[V];
#pragma unroll 1
    for (int subtree = 0; subtree >> bits == 0; ++subtree) {
      Vector own[kSubtree];
#pragma unroll
      for (int i = 0; i < kSubtree; ++i) own[i] = next[i];
      const int own_rows = rows;
      if ((subtree + 1) >> bits == 0) {
        const int from = reversed(subtree + 1, bits);
        rows = rows_from(from);
        fetch(from, rows);
      }
      combine_first_rows<kSubtree>(
          reducer, own_rows, [&](int i, int v) { return reducer.only(own[i].values[v]); }, results);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const Acc last = results[v];
        results[v] = push_subtree(subtree, v, levels, last, [&](const Acc& a, const Acc& b) {
          return reducer.combine(a, b);
        });
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) results[v] = reducer.finish(results[v]);
    write_outputs<R, In, kStep>(plan, first, results);
  }
}

// Reduces few rows of so many columns that they fill a GPU with a thread for each pack. Returns
// false for others.
template <class In, class Acc, class R>
bool launch_few_states(void* stream, const ReducePlan& plan) {
  if (!plan.is_column_wise() || plan.length < 2 || plan.length > kAccumulators ||
      plan.outputs < kManyColumns) {
    return false;
  }
  constexpr int V = kFewPack<In, R>;
  const auto run = [&](auto kernel) {
    launch("reduce_few_states", stream, blocks_for((plan.outputs + V - 1) / V), kThreads, 0, kernel,
           plan, R(plan), subtree_bits(kSubtree, plan.length, kAccumulators));
    return true;
  };
  if (V == 1 || has_packs<In, V>(plan)) return run(reduce_few_states<In, Acc, R, V, 1>);
  return run(reduce_few_states < In, Acc, R, V, V == 1 ? 1 : kThreads >);
}

}  // namespace

}  // namespace gantry::kernels::cuda
