// Arithmetic of softmax, shared by the host and the GPU.
#pragma once

#include <cmath>

#include "kernels/impl/reduce.inl"

namespace gantry::kernels {

GANTRY_HD inline float exponential(float x) { return ::expf(x); }
GANTRY_HD inline double exponential(double x) { return ::exp(x); }
GANTRY_HD inline float natural_logarithm(float x) { return ::logf(x); }
GANTRY_HD inline double natural_logarithm(double x) { return ::log(x); }

template <class Acc>
using SoftmaxMax = Reducer<Reduction::max, Acc>;
template <class Acc>
using SoftmaxSum = Reducer<Reduction::sum, Acc>;

// One element of the result. `tail` is the fibre's sum for softmax and its logarithm for
// log_softmax.
template <class Acc>
GANTRY_HD Acc softmax_element(bool logarithm, Acc x, Acc maximum, Acc tail) {
  return logarithm ? (x - maximum) - tail : exponential(x - maximum) / tail;
}

}  // namespace gantry::kernels
