#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/host/host_fma.hpp"
#include "kernels/impl/reduce.inl"

namespace gantry::kernels::host {

inline constexpr int kAccumulators = kReduceAccumulators;

// The number of accumulators in use: `elements` rounded up to a power of two, at most 128.
inline int accumulator_count(std::int64_t elements) {
  int count = 1;
  while (count < kAccumulators && count < elements) count *= 2;
  return count;
}

// Vectors of 32 bytes, which are two registers of processors without longer ones.
inline constexpr int kLaneBytes = 32;
template <class T>
struct LongVector {
  typedef T Type __attribute__((vector_size(kLaneBytes)));
};
template <class T>
using AccumulatorLanes = typename LongVector<T>::Type;

// The operation of R on vectors of accumulators. A Reducer would take and return them by value,
// which no function may that is not compiled for long vectors.
template <class Lanes, Reduction op, class Acc>
void combine_lanes(Reducer<op, Acc>, Lanes& a, const Lanes& b) {
  if constexpr (op == Reduction::min || op == Reduction::all) {
    a = ((a < b) | (a != a)) ? a : b;
  } else if constexpr (op == Reduction::max || op == Reduction::any) {
    a = ((a > b) | (a != a)) ? a : b;
  } else if constexpr (std::is_same_v<Acc, std::int64_t>) {
    using Wrapping = AccumulatorLanes<std::uint64_t>;
    const auto x = (Wrapping)a;
    const auto y = (Wrapping)b;
    a = op == Reduction::prod ? (Lanes)(x * y) : (Lanes)(x + y);
  } else if constexpr (op == Reduction::prod) {
    a = a * b;
  } else {
    a = a + b;
  }
}

// Elements as the accumulators that `R::load` makes of them.
template <class R, class Acc, class In>
void load_elements(Acc* to, const In* from, int count) {
  for (int i = 0; i < count; ++i) to[i] = R::load(from[i]);
}

// Combines `rows` rows of kAccumulators contiguous elements into the accumulators, kHeld vectors of
// which are in registers.
//
// Blocks of rows are short, so that the accumulators' other parts find the same pages.
template <class R, int kHeld, class Acc>
void combine_rows(Acc* accumulators, const Acc* in, std::int64_t rows) {
  using Lanes = AccumulatorLanes<Acc>;
  constexpr int kLanes = kLaneBytes / sizeof(Acc);
  constexpr std::int64_t kRows = 32;
  constexpr std::int64_t kAhead = 8192 / sizeof(Acc);  // elements that are fetched before their use
  for (std::int64_t first = 0; first < rows; first += kRows) {
    const std::int64_t end = std::min(rows, first + kRows);
    for (int j = 0; j < kAccumulators; j += kHeld * kLanes) {
      Lanes held[kHeld];
      std::memcpy(held, accumulators + j, sizeof held);
      for (std::int64_t row = first; row < end; ++row) {
        const Acc* from = in + row * kAccumulators + j;
        for (int i = 0; i < kHeld; i += 2) __builtin_prefetch(from + kAhead + i * kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < kHeld; ++i) {
          Lanes value;
          std::memcpy(&value, from + i * kLanes, sizeof value);
          if constexpr (R::kOp == Reduction::norm2) value = value * value;
          combine_lanes(R{}, held[i], value);
        }
      }
      std::memcpy(accumulators + j, held, sizeof held);
    }
  }
}

// The number of vectors that combine_rows() holds. Half of the registers are enough for the latency
// of an addition, and leave some for an operation's own values. A sum needs none, so that all
// registers hold accumulators, if the processor has vectors of this length: then memory is read in
// one go.
template <Reduction op, class Acc>
constexpr bool needs_no_registers(Reducer<op, Acc>) {
  return op == Reduction::sum || op == Reduction::prod;
}
template <class R, class Acc>
void combine_rows(Acc* accumulators, const Acc* in, std::int64_t rows) {
  if constexpr (needs_no_registers(R{})) {
    if (capability() != Capability::baseline) return combine_rows<R, 16>(accumulators, in, rows);
  }
  combine_rows<R, 8>(accumulators, in, rows);
}

// Combines element j of `lanes` with element j + kHalf, and so on down to one element.
template <class R, int kHalf, class Lanes, int... k>
auto merge_lanes(Lanes& lanes, std::integer_sequence<int, k...> sequence) {
  const Lanes upper = __builtin_shufflevector(lanes, lanes, ((k + kHalf) % sizeof...(k))...);
  combine_lanes(R{}, lanes, upper);
  if constexpr (kHalf > 1) {
    return merge_lanes<R, kHalf / 2>(lanes, sequence);
  } else {
    return lanes[0];
  }
}

// The tree over `kWidth` accumulators, a power of two.
template <class R, int kWidth, class Acc>
Acc merge_accumulators(const Acc* accumulators) {
  using Lanes = AccumulatorLanes<Acc>;
  constexpr int kLanes = kLaneBytes / sizeof(Acc);
  if constexpr (kWidth <= kLanes) {
    Acc values[kWidth];
    std::copy_n(accumulators, kWidth, values);
    for (int half = kWidth / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) values[j] = R::combine(values[j], values[j + half]);
    }
    return values[0];
  } else {
    constexpr int kVectors = kWidth / kLanes;
    Lanes lanes[kVectors / 2];
#pragma GCC unroll 16
    for (int i = 0; i < kVectors / 2; ++i) {
      Lanes high;
      std::memcpy(&lanes[i], accumulators + i * kLanes, sizeof high);
      std::memcpy(&high, accumulators + (i + kVectors / 2) * kLanes, sizeof high);
      combine_lanes(R{}, lanes[i], high);
    }
#pragma GCC unroll 4
    for (int half = kVectors / 4; half > 0; half /= 2) {
#pragma GCC unroll 8
      for (int i = 0; i < half; ++i) combine_lanes(R{}, lanes[i], lanes[i + half]);
    }
    return merge_lanes<R, kLanes / 2>(lanes[0], std::make_integer_sequence<int, kLanes>{});
  }
}
template <class R, class Acc, int kWidth = kAccumulators>
Acc merge_accumulators(const Acc* accumulators, int width) {
  if constexpr (kWidth > 1) {
    if (width < kWidth) return merge_accumulators<R, Acc, kWidth / 2>(accumulators, width);
  }
  return merge_accumulators<R, kWidth>(accumulators);
}

// True if elements of type In are their own accumulators, but for a square.
template <class R, class Acc, class In>
inline constexpr bool kIsAccumulator =
    std::is_same_v<In, Acc>&& R::kOp != Reduction::sum_abs&& R::kOp != Reduction::any&& R::kOp !=
    Reduction::all&& R::kOp != Reduction::count_nonzero;

// True if the order of Note [Reduction order] does not matter: integers wrap.
template <class Acc>
inline constexpr bool kHasAnyOrder = std::is_same_v<Acc, std::int64_t>;

// The elements in[k * stride] of integers, in the order that suits the compiler.
template <class R, class Acc, class In>
Acc reduce_integers(const In* in, std::int64_t count, std::int64_t stride) {
  Acc result = R::neutral();
  with_fma([=, &result] {
    Acc total = R::neutral();
    if (stride == 1) {
      for (std::int64_t k = 0; k < count; ++k) total = R::combine(total, R::load(in[k]));
    } else {
      for (std::int64_t k = 0; k < count; ++k) total = R::combine(total, R::load(in[k * stride]));
    }
    result = total;
  });
  return result;
}

// Reduces one chunk whose element k is in[k * stride].
template <class R, class Acc, class In>
Acc reduce_chunk(const In* in, std::int64_t count, std::int64_t stride) {
  if constexpr (kHasAnyOrder<Acc>) return reduce_integers<R, Acc>(in, count, stride);
  Acc result;
  with_fma([=, &result] {
    Acc accumulators[kAccumulators];
    const int width = accumulator_count(count);
    std::int64_t k = 0;
    if (stride == 1 && count >= kAccumulators) {
      k = count - count % kAccumulators;
      if constexpr (kIsAccumulator<R, Acc, In>) {
        std::fill_n(accumulators, kAccumulators, R::neutral());
        combine_rows<R>(accumulators, in, count / kAccumulators);
      } else {
        load_elements<R>(accumulators, in, kAccumulators);
        for (std::int64_t first = kAccumulators; first < k; first += kAccumulators) {
          const In* const row = in + first;
          for (int j = 0; j < kAccumulators; ++j) {
            accumulators[j] = R::combine(accumulators[j], R::load(row[j]));
          }
        }
      }
    } else {
      std::fill_n(accumulators, width, R::neutral());
    }
    if (stride == 1) {
      const auto rest = static_cast<int>(count - k);
      for (int j = 0; j < rest; ++j) {
        accumulators[j] = R::combine(accumulators[j], R::load(in[k + j]));
      }
    } else {
      for (; k < count; ++k) {
        Acc& accumulator = accumulators[k % kAccumulators];
        accumulator = R::combine(accumulator, R::load(in[k * stride]));
      }
    }
    result = merge_accumulators<R>(accumulators, width);
  });
  return result;
}

// Reduces the chunk results, level by level, to one value.
template <class Merge, class Acc>
Acc merge_partials(std::vector<Acc>& partials) {
  while (partials.size() > 1) {
    const auto count = static_cast<std::int64_t>(partials.size());
    std::int64_t chunks = 0;
    for (std::int64_t first = 0; first < count; first += kReduceChunk) {
      partials[chunks++] = reduce_chunk<Merge, Acc>(partials.data() + first,
                                                    std::min(kReduceChunk, count - first), 1);
    }
    partials.resize(chunks);
  }
  return partials[0];
}

// Reduces contiguous elements as Note [Reduction order] says: R over elements, Merge over results.
template <class R, class Merge, class Acc, class In>
Acc reduce_contiguous(const In* in, std::int64_t count) {
  if (count <= kReduceChunk) return reduce_chunk<R, Acc>(in, count, 1);
  std::vector<Acc> partials;
  for (std::int64_t first = 0; first < count; first += kReduceChunk) {
    partials.push_back(reduce_chunk<R, Acc>(in + first, std::min(kReduceChunk, count - first), 1));
  }
  return merge_partials<Merge>(partials);
}

}  // namespace gantry::kernels::host
