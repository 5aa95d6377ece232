// The scan (running sum or product) of one fibre, shared by the host and the GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/accumulator.hpp"

namespace gantry::kernels {

// f32 accumulates in f64, because the rounding errors of a running value add up.
template <class In>
using ScanAccumulator = std::conditional_t<std::is_same_v<In, float>, double, AccumulatorType<In>>;

template <class Acc>
GANTRY_HD Acc scan_step(bool product, Acc running, Acc value) {
  return product ? wrapping_multiply(running, value) : wrapping_add(running, value);
}

// Rounds each element of the result; the accumulator itself is never rounded.
template <class Out, class In>
GANTRY_HD void scan_fibre(bool product, Out* out, std::int64_t out_stride, const In* in,
                          std::int64_t in_stride, std::int64_t length) {
  using Acc = ScanAccumulator<In>;
  if (length == 0) return;
  Acc running = static_cast<Acc>(in[0]);
  out[0] = from_accumulator<Out>(running);
  for (std::int64_t k = 1; k < length; ++k) {
    running = scan_step(product, running, static_cast<Acc>(in[k * in_stride]));
    out[k * out_stride] = from_accumulator<Out>(running);
  }
}

// The result's element type for elements of type In: i64 for integers and bool, else In.
template <class In>
using ScanOut = std::conditional_t<is_floating_point(dtype_of<In>), In, std::int64_t>;

}  // namespace gantry::kernels
