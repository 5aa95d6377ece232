// Reductions of rows of one to four elements on the GPU.
#pragma once

#include "kernels/cuda/reductions/reduce_chunk.cuh"

namespace gantry::kernels::cuda {

namespace {

// Rows of a thread of reduce_tiny_rows: one element of each fills an access, and their states fit
// into registers.
template <class In, class R>
constexpr int tiny_pack() {
  constexpr int kAccess = 16 / static_cast<int>(sizeof(In));
  constexpr int kStates = 64 / static_cast<int>(sizeof(typename R::State));
  return kAccess < kStates ? kAccess : kStates;
}
template <class In, class R>
constexpr int kTinyPack = tiny_pack<In, R>();

// A thread reduces V rows of kLength elements, which lie side by side in memory.
template <class In, class Acc, class R, int V, int kLength>
__global__ void __launch_bounds__(kThreads, kBlocksOf<R, kThreads, 80>)
    reduce_tiny_rows(const __grid_constant__ ReducePlan plan, const R reducer) {
  using Vector = StoredPack<In, V>;
  for (std::int64_t pack = first_index(); pack * V < plan.outputs; pack += index_step()) {
    const std::int64_t first = pack * V;
    const In* const rows = static_cast<const In*>(plan.in) + first * kLength;
    const bool is_whole = first + V <= plan.outputs;
    In elements[kLength * V];
#pragma unroll
    for (int i = 0; i < kLength; ++i) {
      if (is_whole) {
        const Vector vector = reinterpret_cast<const Vector*>(rows)[i];
#pragma unroll
        for (int v = 0; v < V; ++v) elements[i * V + v] = vector.values[v];
      } else {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          if (first * kLength + i * V + v < plan.outputs * kLength) {
            elements[i * V + v] = rows[i * V + v];
          }
        }
      }
    }
    Acc results[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const auto state = [&](int k) { return state_of(reducer, elements[v * kLength + k], k); };
      Acc even = state(0);
      if constexpr (kLength > 2) even = reducer.combine(even, state(2));
      if constexpr (kLength > 1) {
        Acc odd = state(1);
        if constexpr (kLength > 3) odd = reducer.combine(odd, state(3));
        even = reducer.combine(even, odd);
      }
      results[v] = reducer.finish(even);
    }
    if (is_whole) {
      write_outputs<R, In>(plan, first, results);
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (first + v < plan.outputs) write_output<R>(plan, first + v, results[v]);
      }
    }
  }
}

// True if the rows of `plan` lie side by side in aligned memory, for vectors of V elements.
template <class In, int V>
bool has_tiny_rows(const ReducePlan& plan) {
  constexpr std::int64_t kLongest = 4;
  const bool is_dense =
      plan.length == 1 || (plan.reduced.ndim == 1 && plan.reduced.strides[0] == 1);
  return plan.length <= kLongest && plan.kept.ndim == 1 && is_dense &&
         plan.kept.strides[0] == plan.length &&
         reinterpret_cast<std::uintptr_t>(plan.in) % sizeof(StoredPack<In, V>) == 0;
}

}  // namespace

}  // namespace gantry::kernels::cuda
