// Reductions of several ranks' arrays by the threads of a block.
#pragma once

#include <cstdint>
#include <type_traits>

#include "collectives/protocol/signal.hpp"
#include "kernels/impl/nary.inl"

namespace gantry::protocol::cuda {

// Rounded by itself: the compiler must not fuse it into the sum. To multiply by 1 changes nothing
// and costs less than to ask.
template <class Acc>
__device__ Acc scaled(Acc value, double scale) {
  if constexpr (std::is_same_v<Acc, float>) {
    return __fmul_rn(value, static_cast<float>(scale));
  } else if constexpr (std::is_same_v<Acc, double>) {
    return __dmul_rn(value, scale);
  } else {
    return value;
  }
}

// Reduces the 16-byte words of `bytes` in turns of `Threads`. A thread has `Words` words of `Ranks`
// ranks in flight: they may be a microsecond away. `IsOneRound`: there are no more ranks.
template <class F, int Threads, int Ranks, int Words, bool IsOneRound, class From>
__device__ void reduce_words(const ReduceBy& how, const Targets& to, std::int64_t bytes,
                             const From& from, int thread) {
  using Element = typename F::Stored;
  using Acc = typename F::Acc;
  constexpr int V = 16 / sizeof(Element);
  const int words = static_cast<int>((bytes + 15) / 16);
  // A single target may be any tensor; several are all in staging, or registered memory.
  const int first_target = to.ranks == 0 ? 0 : __ffs(static_cast<int>(to.ranks)) - 1;
  const bool aligned =
      (reinterpret_cast<std::uintptr_t>(to.bases[first_target]) + to.offset) % 16 == 0;
  const int ranks = from.count;
  const double scale = how.scale;
  const double divisor = how.divisor;

  const auto load = [&](uint4(&loaded)[Words][Ranks], int at, int first) {
#pragma unroll
    for (int r = 0; r < Ranks; ++r) {
      if (first + r >= ranks) continue;
      const auto* in = reinterpret_cast<const uint4*>(from.at(first + r));
#pragma unroll
      for (int w = 0; w < Words; ++w) {
        if (at + w * Threads < words) loaded[w][r] = in[at + w * Threads];
      }
    }
  };
  const auto add = [&](Acc(&acc)[V], const uint4& loaded, bool is_first) {
    Element elements[V];
    memcpy(static_cast<void*>(elements), &loaded, 16);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const Acc value = scaled(F::load(elements[i]), scale);
      acc[i] = is_first ? value : F::combine(acc[i], value);
    }
  };
  const auto store = [&](int word, const Acc(&acc)[V]) {
    if (word >= words) return;
    Element elements[V];
    F::finish(acc, divisor, elements);
    const std::int64_t begin = std::int64_t{word} * 16;
    const std::int64_t count = (bytes - begin) / static_cast<std::int64_t>(sizeof(Element));
#pragma unroll 1
    for (std::uint32_t left = to.ranks; left != 0; left &= left - 1) {
      std::byte* at_word = to.bases[__ffs(static_cast<int>(left)) - 1] + to.offset + begin;
      if (aligned && count >= V) {
        memcpy(__builtin_assume_aligned(at_word, 16), elements, 16);
        continue;
      }
      auto* out = reinterpret_cast<Element*>(at_word);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        if (i < count) out[i] = elements[i];
      }
    }
  };

  // Unrolled further, loads would not fit into registers.
#pragma unroll 1
  for (int at = thread; at < words; at += Threads * Words) {
    if constexpr (IsOneRound) {
      // Word by word, so that the results of one word at a time need registers.
      uint4 loaded[Words][Ranks];
      load(loaded, at, 0);
#pragma unroll
      for (int w = 0; w < Words; ++w) {
        Acc acc[V];
#pragma unroll
        for (int r = 0; r < Ranks; ++r) {
          if (r < ranks) add(acc, loaded[w][r], r == 0);
        }
        store(at + w * Threads, acc);
      }
    } else {
      Acc acc[Words][V];
#pragma unroll 1
      for (int first = 0; first < ranks; first += Ranks) {
        uint4 loaded[Words][Ranks];
        load(loaded, at, first);
#pragma unroll
        for (int r = 0; r < Ranks; ++r) {
          if (first + r >= ranks) continue;
#pragma unroll
          for (int w = 0; w < Words; ++w) add(acc[w], loaded[w][r], first + r == 0);
        }
      }
#pragma unroll
      for (int w = 0; w < Words; ++w) store(at + w * Threads, acc[w]);
    }
  }
}

// See CudaWarpRole::reduce. The operation is chosen once, outside all loops. Two ranks have an
// instantiation with as many bytes in flight as eight; sums, the most frequent operation, also have
// one for four ranks.
template <class T, int Threads, class From>
__device__ void reduce(const ReduceBy& how, const Targets& to, std::int64_t bytes, const From& from,
                       int thread) {
  using kernels::NaryOp;
  kernels::with_nary_functor<T>(how.op, [&](auto functor) {
    using F = typename decltype(functor)::type;
    if constexpr (F::kIsDefined) {
      if constexpr (From::kLeast <= 2) {
        constexpr int kWords = sizeof(T) >= 2 ? 2 : 1;  // of bytes, one fills as many accumulators
        if (from.count <= 2)
          return reduce_words<F, Threads, 2, kWords, true>(how, to, bytes, from, thread);
      }
      if constexpr (std::is_same_v<F, kernels::NaryFunctor<T, NaryOp::sum>> && sizeof(T) >= 2) {
        if (from.count <= 4)
          return reduce_words<F, Threads, 4, 1, true>(how, to, bytes, from, thread);
      }
      reduce_words<F, Threads, 8, 1, false>(how, to, bytes, from, thread);
    }
  });
}

}  // namespace gantry::protocol::cuda
