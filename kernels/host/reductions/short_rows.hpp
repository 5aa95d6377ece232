// Short rows, which are reduced as columns of their transpose.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/host/layout/transpose.hpp"
#include "kernels/host/reductions/columns.hpp"
#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels::host {

// The longest rows that are reduced as columns of their transpose.
inline constexpr std::int64_t kShortRow = 64;

// The word of an element's size, which transpose_words() moves.
template <class T>
using WordOf = std::conditional_t<
    sizeof(T) == 1, std::uint8_t,
    std::conditional_t<sizeof(T) == 2, std::uint16_t,
                       std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

// True if outputs have short contiguous rows that are evenly spaced.
inline bool has_short_rows(const ReducePlan& plan) {
  return plan.reduced.ndim == 1 && plan.reduced.strides[0] == 1 && plan.length <= kShortRow &&
         plan.kept.ndim > 0 && plan.kept.sizes[plan.kept.ndim - 1] >= kShortRow;
}

// True if the fibres of with_merged_dims() are contiguous rows of at most `longest` elements, of
// which several lie evenly spaced.
inline bool has_short_fibres(const FibrePlan& plan, std::int64_t longest) {
  constexpr std::int64_t kFewest = 8;
  const int last = plan.in.outer.ndim - 1;
  return plan.in.stride == 1 && plan.out.stride == 1 && plan.length <= longest && last >= 0 &&
         plan.in.outer.sizes[last] >= kFewest;
}

}  // namespace gantry::kernels::host
