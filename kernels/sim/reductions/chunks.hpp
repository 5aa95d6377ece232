#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/impl/reduce.inl"
#include "kernels/sim/host_fma.hpp"

namespace gantry::kernels::host {

inline constexpr int kAccumulators = kReduceAccumulators;

// The number of accumulators in use: `elements` rounded up to a power of two, at most 128.
inline int accumulator_count(std::int64_t elements) {
  int count = 1;
  while (count < kAccumulators && count < elements) count *= 2;
  return count;
}

// Reduces one chunk whose element k is in[k * stride].
template <class R, class Acc, class In>
Acc reduce_chunk(const In* in, std::int64_t count, std::int64_t stride) {
  Acc result;
  with_fma([=, &result] {
    Acc accumulators[kAccumulators];
    const int width = accumulator_count(count);
    std::fill_n(accumulators, width, R::neutral());
    std::int64_t k = 0;
    if (stride == 1) {
      for (; k + kAccumulators <= count; k += kAccumulators) {
        for (int j = 0; j < kAccumulators; ++j) {
          accumulators[j] = R::combine(accumulators[j], R::load(in[k + j]));
        }
      }
    }
    for (; k < count; ++k) {
      Acc& accumulator = accumulators[k % kAccumulators];
      accumulator = R::combine(accumulator, R::load(in[k * stride]));
    }
    for (int half = width / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) {
        accumulators[j] = R::combine(accumulators[j], accumulators[j + half]);
      }
    }
    result = accumulators[0];
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
  std::vector<Acc> partials;
  for (std::int64_t first = 0; first < count; first += kReduceChunk) {
    partials.push_back(reduce_chunk<R, Acc>(in + first, std::min(kReduceChunk, count - first), 1));
  }
  return merge_partials<Merge>(partials);
}

}  // namespace gantry::kernels::host
