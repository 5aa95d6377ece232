#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/impl/reduce.inl"

namespace gantry::kernels::host {

inline constexpr int kLanes = kReduceLanes;

// Lanes that have an element: 128, or the power of two that holds `elements`.
inline int lane_count(std::int64_t elements) {
  int lanes = 1;
  while (lanes < kLanes && lanes < elements) lanes *= 2;
  return lanes;
}

// One segment whose element k is in[k * stride].
template <class R, class Acc, class In>
Acc reduce_segment(const In* in, std::int64_t count, std::int64_t stride) {
  Acc lanes[kLanes];
  const int width = lane_count(count);
  std::fill_n(lanes, width, R::neutral());
  std::int64_t k = 0;
  if (stride == 1) {
    for (; k + kLanes <= count; k += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = R::combine(lanes[lane], R::load(in[k + lane]));
      }
    }
  }
  for (; k < count; ++k) {
    Acc& lane = lanes[k % kLanes];
    lane = R::combine(lane, R::load(in[k * stride]));
  }
  for (int half = width / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) {
      lanes[lane] = R::combine(lanes[lane], lanes[lane + half]);
    }
  }
  return lanes[0];
}

// Reduces segment results until one is left.
template <class Merge, class Acc>
Acc merge_segments(std::vector<Acc>& partials) {
  while (partials.size() > 1) {
    const auto count = static_cast<std::int64_t>(partials.size());
    std::int64_t segments = 0;
    for (std::int64_t first = 0; first < count; first += kReduceSegment) {
      partials[segments++] = reduce_segment<Merge, Acc>(partials.data() + first,
                                                        std::min(kReduceSegment, count - first), 1);
    }
    partials.resize(segments);
  }
  return partials[0];
}

// Note [Reduction order] for contiguous elements: R over the elements, Merge over the results.
template <class R, class Merge, class Acc, class In>
Acc reduce_contiguous(const In* in, std::int64_t count) {
  std::vector<Acc> partials;
  for (std::int64_t first = 0; first < count; first += kReduceSegment) {
    partials.push_back(
        reduce_segment<R, Acc>(in + first, std::min(kReduceSegment, count - first), 1));
  }
  return merge_segments<Merge>(partials);
}

}  // namespace gantry::kernels::host
