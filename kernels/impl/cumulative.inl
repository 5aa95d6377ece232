// The running maximum or minimum of one fibre, shared by the host and the GPU.
#pragma once

#include <cstdint>

#include "kernels/ordering/ordered_key.hpp"
#include "kernels/ordering/sort_plan.hpp"

namespace gantry::kernels {

// Keys of which the largest is the extremum. NaN has the largest.
template <class U>
[[nodiscard]] KeyOrder<U> make_extremum_order(DType dtype, bool largest) {
  KeyOrder<U> order = make_key_order<U>(dtype, !largest);
  order.nan = static_cast<U>(~U(0));
  return order;
}

// key_of(bits): the key of an element.
template <class U, class KeyOf>
GANTRY_HD void run_fibre(const SortPlan& plan, const KeyOrder<U>& order, const KeyOf& key_of,
                         std::int64_t fibre) {
  const U* in = sort_input<U>(plan, fibre);
  const std::int64_t stride = plan.fibres.in.stride;
  const SortOutput<U> out = sort_output<U>(plan, fibre);
  U best_bits = in[0];
  U best_key = key_of(best_bits);
  std::int64_t best = 0;
  for (std::int64_t i = 0; i < plan.fibres.length; ++i) {
    const U bits = in[i * stride];
    const U key = key_of(bits);
    if (key >= best_key) {
      best_bits = bits;
      best_key = key;
      best = i;
    }
    out.write(i, order.stored(best_bits), best);
  }
}

}  // namespace gantry::kernels
