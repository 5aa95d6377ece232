// Arithmetic of softmax, shared by the host and the GPU.
#pragma once

#include "kernels/impl/reduce.inl"
#include "kernels/math/math.hpp"

namespace gantry::kernels {

template <class Acc>
GANTRY_HD Acc exponential(Acc x) {
  return math::exp(x);
}
template <class Acc>
GANTRY_HD Acc natural_logarithm(Acc x) {
  return math::log(x);
}

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
