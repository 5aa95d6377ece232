// Reductions of columns of at most a chunk on the GPU, a few threads for each.
#pragma once

#include "kernels/cuda/reductions/reduce_in_thread.cuh"

namespace gantry::kernels::cuda {

namespace {

// Note [Parts of columns]
// Threads that share a column combine what they have in shared memory, while none of their loads is
// under way. So few threads share one: as many as it takes to fill a GPU with blocks. A warp reads
// 128 to 512 bytes side by side, and a thread has the rows of one step under way while it takes in
// the step before.

constexpr int kPartThreads = 256;
// Accumulators of a column that a thread holds at a time.
// Those of 4 bytes are many where one thread has the column.
template <class R, int V, int P>
constexpr int kPartHeld = sizeof(typename R::Accumulator) > 8 ? V == 1 ? 8 : 4
                          : V == 1 && P == 1 && sizeof(typename R::Accumulator) == 4 ? 16
                                                                                     : 8;
// Neighbouring columns that a thread reads at once, where they form packs: as many as fit into one
// access, and the accumulators that it holds into 32 registers.
template <class In, class R>
constexpr int part_pack() {
  constexpr int kAccess = 16 / static_cast<int>(sizeof(In));
  constexpr int kStates =
      128 / static_cast<int>(kPartHeld<R, 2, 1> * sizeof(typename R::Accumulator));
  return kAccess < kStates ? kAccess : kStates;
}
template <class In, class R>
constexpr int kPartPack = part_pack<In, R>();
// True if a thread has enough bytes under way. Work on states takes longer than the reads.
template <class In, class R>
constexpr bool kHasWideParts = kHasState<R> || kPartPack<In, R> * sizeof(In) >= 8;
// Threads that share a column, if a thread for each does not fill a GPU.
constexpr int kParts = 8;
// Columns of a block in which `parts` threads share V columns.
template <int V, int parts>
constexpr int kPartTile = kPartThreads / parts* V;
// Blocks that a multiprocessor is to hold: what they have under way is enough for its memory. More
// small ones leave less of the last turn idle.
template <class R, int V, int P>
constexpr int kPartBlocks = V > 1 || sizeof(typename R::Accumulator) > 8    ? 2
                            : P > 1 && sizeof(typename R::Accumulator) == 4 ? 4
                                                                            : 3;
// Fewest blocks that fill a GPU.
constexpr std::int64_t kManyPartTiles = 200;

// Reduces columns of at most a chunk. P threads of a block share V neighbouring columns: part `p`
// has the accumulators p, p + P, …. `bits` as in reduce_in_thread(), for the rows of a part. Packs
// are aligned.
template <class In, class Acc, class R, int V, int P>
__global__ void __launch_bounds__(kPartThreads, kPartBlocks<R, V, P>)
    reduce_column_parts(const __grid_constant__ ReducePlan plan, const R reducer, int bits) {
  using Vector = StoredPack<In, V>;
  constexpr int kPacks = kPartThreads / P;
  constexpr int kTile = kPartTile<V, P>;
  constexpr int kHeld = kPartHeld<R, V, P>;
  constexpr int kSubtrees = kAccumulators / P / kHeld;
  constexpr int kLevels = kSubtrees >= 16 ? 4 : kSubtrees >= 8 ? 3 : kSubtrees >= 4 ? 2 : 1;
  static_assert(kSubtrees >= 1 && kSubtrees <= 1 << kLevels);
  __shared__ Acc shared[P > 1 ? P : 1][P > 1 ? kTile : 1];
  const std::int64_t stride = plan.reduced.strides[0];
  const int thread = static_cast<int>(threadIdx.x);
  const int pack = thread % kPacks;
  const int part = thread / kPacks;
  __builtin_assume(thread >= 0 && thread < kPartThreads);
  __builtin_assume(part >= 0);
  for (std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kTile; tile < plan.outputs;
       tile += static_cast<std::int64_t>(gridDim.x) * kTile) {
    const std::int64_t output = tile + pack * V;
    const bool is_present = output < plan.outputs;
    const int length = is_present ? static_cast<int>(plan.length) : 0;
    const In* column = static_cast<const In*>(plan.in) + part * stride;
    if (is_present) column += near_offset(plan.kept, output);
    Acc results[V];
    reduce_ahead_in_thread<kHeld, kLevels, In, V>(
        reducer, column, P * stride, length > part ? (length - part + P - 1) / P : 0, length, bits,
        [&](int at) { return part + at * P; }, results);
    if constexpr (P == 1) {
#pragma unroll
      for (int v = 0; v < V; ++v) results[v] = reducer.finish(results[v]);
      if (is_present) write_outputs<R, In>(plan, output, results);
    } else {
      __syncthreads();  // the previous tile may still read the shared array
#pragma unroll
      for (int v = 0; v < V; ++v) shared[part][pack * V + v] = results[v];
      for (int half = P / 2; half > 1; half /= 2) {
        __syncthreads();
        for (int at = thread; at < half * kTile; at += kPartThreads) {
          Acc& into = shared[at / kTile][at % kTile];
          into = reducer.combine(into, shared[at / kTile + half][at % kTile]);
        }
      }
      __syncthreads();
      for (int c = thread; c < kTile && tile + c < plan.outputs; c += kPartThreads) {
        const Acc result[1] = {reducer.finish(reducer.combine(shared[0][c], shared[1][c]))};
        write_outputs<R, In>(plan, tile + c, result);
      }
    }
  }
}

// Launches reduce_column_parts with `P` threads for V columns.
template <class In, class Acc, class R, int V, int P>
void launch_column_parts(void* stream, const ReducePlan& plan, const R& reducer) {
  constexpr int kTile = kPartTile<V, P>;
  launch("reduce_column_parts", stream, limited((plan.outputs + kTile - 1) / kTile), kPartThreads,
         0, reduce_column_parts<In, Acc, R, V, P>, plan, reducer,
         subtree_bits(kPartHeld<R, V, P>, (plan.length + P - 1) / P, kAccumulators / P));
}

}  // namespace

}  // namespace gantry::kernels::cuda
