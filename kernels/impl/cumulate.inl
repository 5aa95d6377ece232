// One line of a running sum or product, shared by the host and the GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/accumulator.hpp"

namespace gantry::kernels {

// f64 for f32: errors of the running value add up over a whole line.
template <class In>
using CumulateAccumulator =
    std::conditional_t<std::is_same_v<In, float>, double, AccumulatorType<In>>;

template <class Acc>
GANTRY_HD Acc cumulate_step(bool product, Acc running, Acc value) {
  return product ? wrapping_multiply(running, value) : wrapping_add(running, value);
}

// Rounds every element of the result on its own; the running accumulator is never rounded.
template <class Out, class In>
GANTRY_HD void cumulate_line(bool product, Out* out, std::int64_t out_stride, const In* in,
                             std::int64_t in_stride, std::int64_t length) {
  using Acc = CumulateAccumulator<In>;
  if (length == 0) return;
  Acc running = static_cast<Acc>(in[0]);
  out[0] = from_accumulator<Out>(running);
  for (std::int64_t k = 1; k < length; ++k) {
    running = cumulate_step(product, running, static_cast<Acc>(in[k * in_stride]));
    out[k * out_stride] = from_accumulator<Out>(running);
  }
}

// The element types of a result for elements of type In: its own, and i64 for integers and bool.
template <class In>
using CumulateOut = std::conditional_t<is_floating_point(dtype_of<In>), In, std::int64_t>;

}  // namespace gantry::kernels
