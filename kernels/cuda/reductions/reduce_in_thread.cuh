// The accumulators of a chunk in one thread, a few at a time.
#pragma once

#include "kernels/cuda/reductions/reduce_chunk.cuh"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {

namespace {

// The number whose lowest `bits` bits are those of `i` in reverse.
__device__ inline int reversed(int i, int bits) {
  return static_cast<int>(__brev(static_cast<unsigned>(i)) >> 1 >> (31 - bits));
}

// Results that a thread with kHeld accumulators at a time keeps: one of each level of the tree but
// the last.
template <int kHeld>
constexpr int kTreeLevels = kHeld >= 8 ? 4 : 5;
static_assert(8 << kTreeLevels<8> == kAccumulators && 4 << kTreeLevels<4> == kAccumulators);

// Adds the result of subtree number `subtree` to the levels of lane `v`. As a binary counter: a
// subtree completes the levels whose bits are set in its number. Returns the last result that it
// completes.
//
// A template, because levels with a varying index would be in memory. For the same reason an empty
// asm keeps the compiler from making one store of the stores of all levels.
template <int kLevel = 0, int kLevels, int V, class Acc, class Combine>
__device__ Acc push_subtree(int subtree, int v, Acc (&levels)[kLevels][V], const Acc& state,
                            const Combine& combine) {
  if constexpr (kLevel < kLevels) {
    if ((subtree >> kLevel & 1) != 0) {
      return push_subtree<kLevel + 1>(subtree, v, levels, combine(levels[kLevel][v], state),
                                      combine);
    }
    levels[kLevel][v] = state;
    asm volatile("");
  }
  return state;
}

// Reduces `count` vectors of V elements, lane by lane, in one thread. Vector `at`, which load(at)
// reads, belongs to accumulator `at` modulo kHeld << bits of each lane. position(at, lane) is the
// element's number in its chunk, which has `length` elements. results[lane] is not finished.
//
// The thread holds kHeld accumulators at a time, a subtree of the tree over all, and one result of
// each of the tree's levels above. There are 2^bits such subtrees.
template <int kHeld, class In, int V, class R, class Acc, class Load, class Position>
__device__ void reduce_in_thread(const R& reducer, int count, int length, int bits,
                                 const Load& load, const Position& position, Acc (&results)[V]) {
  Acc levels[kTreeLevels<kHeld>][V];
#pragma unroll 1
  for (int subtree = 0; subtree < 1 << bits; ++subtree) {
    const int first = reversed(subtree, bits);
    typename R::Accumulator own[kHeld][V];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
#pragma unroll
      for (int v = 0; v < V; ++v) own[i][v] = reducer.start();
    }
#pragma unroll 1
    for (int k = first; k < count; k += kHeld << bits) {
      StoredPack<In, V> batch[kHeld];
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const int at = k + (i << bits);
        if (at < count) batch[i] = load(at);
      }
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const int at = k + (i << bits);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          if (at < count) reducer.take(own[i][v], batch[i].values[v], position(at, v));
        }
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      Acc states[kHeld];
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const int at = first + (i << bits);
        states[i] = reducer.close(own[i][v], elements_of(length, position(at, v)), 0);
      }
      combine_own<kHeld / 2>(reducer, states);
      results[v] = push_subtree(subtree, v, levels, states[0],
                                [&](const Acc& a, const Acc& b) { return reducer.combine(a, b); });
    }
  }
}

// As reduce_in_thread(), of rows that are `stride` elements apart from `column` on, with the loads
// of a step under way while the one before is taken in. kLevels levels are enough for 2^bits
// subtrees. Every subtree has an element, or none has.
template <int kHeld, int kLevels, class In, int V, class R, class Acc, class Position>
__device__ void reduce_ahead_in_thread(const R& reducer, const In* column, std::int64_t stride,
                                       int count, int length, int bits, const Position& position,
                                       Acc (&results)[V]) {
  using Vector = StoredPack<In, V>;
  const std::int64_t step = stride << bits;
  Acc levels[kLevels][V];
  Vector next[kHeld] = {};
  const auto fetch = [&](int k) {
    const In* from = column + k * stride;
#pragma unroll
    for (int i = 0; i < kHeld; ++i, from += step) {
      if (k + (i << bits) < count) next[i] = *reinterpret_cast<const Vector*>(from);
    }
  };
  fetch(0);
#pragma unroll 1
  for (int subtree = 0; subtree >> bits == 0; ++subtree) {
    const int first = reversed(subtree, bits);
    const int after = (subtree + 1) >> bits == 0 ? reversed(subtree + 1, bits) : count;
    typename R::Accumulator own[kHeld][V];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
#pragma unroll
      for (int v = 0; v < V; ++v) own[i][v] = reducer.start();
    }
#pragma unroll 1
    for (int k = first; k < count; k += kHeld << bits) {
      Vector batch[kHeld];
#pragma unroll
      for (int i = 0; i < kHeld; ++i) batch[i] = next[i];
      const int following = k + (kHeld << bits);
      fetch(following < count ? following : after);
      const auto take = [&](int i) {
        const int at = k + (i << bits);
#pragma unroll
        for (int v = 0; v < V; ++v) reducer.take(own[i][v], batch[i].values[v], position(at));
      };
      if (k + ((kHeld - 1) << bits) < count) {  // without a branch for each row
#pragma unroll
        for (int i = 0; i < kHeld; ++i) take(i);
      } else {
#pragma unroll
        for (int i = 0; i < kHeld - 1; ++i) {
          if (k + (i << bits) < count) take(i);
        }
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      Acc states[kHeld];
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        states[i] = reducer.close(own[i][v], elements_of(length, position(first + (i << bits))), 0);
      }
      combine_own<kHeld / 2>(reducer, states);
      results[v] = push_subtree(subtree, v, levels, states[0],
                                [&](const Acc& a, const Acc& b) { return reducer.combine(a, b); });
    }
  }
}

// The bits of reduce_in_thread() for `count` vectors of `most` accumulators or fewer.
inline int subtree_bits(int held, std::int64_t count, int most) {
  int bits = 0;
  while (held << bits < count && held << bits < most) ++bits;
  return bits;
}

}  // namespace

}  // namespace gantry::kernels::cuda
