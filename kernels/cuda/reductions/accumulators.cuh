#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/reductions/reduce_plan.hpp"

namespace gantry::kernels::cuda {

// Tree reduction of the 128 accumulators of a chunk, the last step of Note [Reduction order].
// There is one function for each distribution of accumulators over threads. Accumulators without
// an element hold reducer.neutral().

// The tree over values that one thread holds: value j with j + kHalf, then with j + kHalf / 2, ….
// The result is values[0]. A template, because a loop with a varying bound would not be unrolled.
template <int kHalf, class R, class Acc, int N>
__device__ void combine_own(const R& reducer, Acc (&values)[N]) {
  static_assert(2 * kHalf <= N);
#pragma unroll
  for (int i = 0; i < kHalf; ++i) values[i] = reducer.combine(values[i], values[i + kHalf]);
  if constexpr (kHalf > 1) combine_own<kHalf / 2>(reducer, values);
}

// A value of another thread, number by number: `shuffle` moves one.
template <class Acc, class Shuffle>
__device__ Acc shuffled(const Acc& value, const Shuffle& shuffle) {
  if constexpr (std::is_arithmetic_v<Acc>) {
    return shuffle(value);
  } else {
    constexpr int kWords = sizeof(Acc) / 4;
    std::uint32_t words[kWords];
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = shuffle(words[i]);
    Acc result;
    memcpy(&result, words, sizeof result);
    return result;
  }
}

// The value of the thread that is `half` threads further on in the group of `group`.
template <class Acc>
__device__ Acc shuffle_down(const Acc& value, int half, int group) {
  return shuffled(value, [=](auto x) { return __shfl_down_sync(0xffffffffu, x, half, group); });
}

// Combines value j with value j + 16, 8, 4, 2, 1 in groups of `group` threads of a warp. Every
// thread of the warp calls; the group's first thread gets the result.
template <class R, class Acc>
__device__ Acc reduce_in_group(const R& reducer, Acc value, int group) {
  for (int half = group / 2; half > 0; half /= 2) {
    value = reducer.combine(value, shuffle_down(value, half, group));
  }
  return value;
}

// Combines `low`, of the thread without bit `half` in its lane, with `high`, of the thread with it.
// The thread passes its own one of the two and `given`, which the other thread takes for its own.
template <class R, class Acc>
__device__ Acc combine_across(const R& reducer, const Acc& own, const Acc& given, int lane,
                              int half) {
  const Acc other = shuffled(given, [=](auto x) { return __shfl_xor_sync(0xffffffffu, x, half); });
  return (lane & half) == 0 ? reducer.combine(own, other) : reducer.combine(other, own);
}

// The tree over 4 * group states, of which thread t of a group has 4 t … 4 t + 3; as
// reduce_in_group, which leaves most threads without work, for states of several numbers: a group
// of 4 or more first shares out the four trees.
template <class R, class Acc>
__device__ Acc reduce_four_in_group(const R& reducer, Acc (&states)[4], int lane, int group) {
  if (group < 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) states[i] = reduce_in_group(reducer, states[i], group);
    return reducer.combine(reducer.combine(states[0], states[2]),
                           reducer.combine(states[1], states[3]));
  }
  const bool has_upper = (lane & group / 2) != 0;
  Acc pair[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    pair[i] = combine_across(reducer, has_upper ? states[i + 2] : states[i],
                             has_upper ? states[i] : states[i + 2], lane, group / 2);
  }
  const bool has_odd = (lane & group / 4) != 0;
  Acc result = combine_across(reducer, has_odd ? pair[1] : pair[0], has_odd ? pair[0] : pair[1],
                              lane, group / 4);
  for (int half = group / 8; half > 0; half /= 2) {
    result = combine_across(reducer, result, result, lane, half);
  }
  result = combine_across(reducer, result, result, lane, group / 2);
  return combine_across(reducer, result, result, lane, group / 4);
}

// Thread t of 32 has the accumulators t, t + 32, t + 64, t + 96. With fewer threads only the first
// accumulator of each is in use.
template <class R, class Acc>
__device__ Acc combine_warp_accumulators(const R& reducer, const Acc (&own)[4], int group) {
  const Acc lower = reducer.combine(own[0], own[2]);
  const Acc upper = reducer.combine(own[1], own[3]);
  return reduce_in_group(reducer, reducer.combine(lower, upper), group);
}

// Each thread of a block of 128 has one accumulator. Every thread calls; thread 0 gets the result.
template <class R, class Acc>
__device__ Acc combine_block_accumulators(const R& reducer, Acc accumulator) {
  __shared__ Acc accumulators[kReduceAccumulators];
  __syncthreads();  // the previous call may still read the shared array
  accumulators[threadIdx.x] = accumulator;
  __syncthreads();
  if (threadIdx.x >= 32) return accumulator;
  const int t = static_cast<int>(threadIdx.x);
  const Acc own[4] = {accumulators[t], accumulators[t + 32], accumulators[t + 64],
                      accumulators[t + 96]};
  return combine_warp_accumulators(reducer, own, 32);
}

// In a block of C x T threads, the thread of column `c` and part `t` has the accumulators t, t + T,
// t + 2 T, …. Every thread calls; the threads with part 0 get the results.
template <class R, class Acc, int kOwn, int T, int C>
__device__ Acc combine_column_accumulators(const R& reducer, Acc (&own)[kOwn], Acc (&shared)[T][C],
                                           int c, int t) {
  static_assert(kOwn * T == kReduceAccumulators);
  combine_own<kOwn / 2>(reducer, own);
  __syncthreads();
  shared[t][c] = own[0];
  __syncthreads();
  if (t != 0) return own[0];
  Acc accumulators[T];
#pragma unroll
  for (int i = 0; i < T; ++i) accumulators[i] = shared[i][c];
  combine_own<T / 2>(reducer, accumulators);
  return accumulators[0];
}

}  // namespace gantry::kernels::cuda
