// What the kernels of softmax for rows share.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reductions/accumulators.cuh"
#include "kernels/fibre_plan.hpp"
#include "kernels/impl/softmax.inl"

namespace gantry::kernels::cuda {

namespace {

constexpr int kAccumulators = kReduceAccumulators;

// What ends an element of a row: the difference to the logarithm of the sum, or the quotient by the
// sum, which is at least 1 (or NaN) and less than 2^41.
//
// Note [Quotients by one divisor]
// An f32 quotient is made from the divisor's reciprocal, which is rounded correctly. The first
// product is corrected twice by its exact remainder: then it is within an ulp, then rounded as a
// division rounds (Markstein's theorem). Remainders of tiny dividends are not exact: these are
// divided.
template <class Acc>
class RowEnd {
 public:
  __device__ RowEnd(bool logarithm, Acc sum)
      : logarithm_(logarithm),
        tail_(logarithm ? natural_logarithm(sum) : sum),
        reciprocal_(Acc(1) / sum) {}

  // `value` is x - maximum for logarithms, else its exponential.
  __device__ Acc operator()(Acc value) const {
    if (logarithm_) return value - tail_;
    if constexpr (std::is_same_v<Acc, float>) {
      if (value < 1e-22f && value > 0) return value / tail_;
      float quotient = value * reciprocal_;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float remainder = math::fma(-quotient, tail_, value);
        quotient = math::fma(remainder, reciprocal_, quotient);
      }
      return quotient;
    } else {
      return value / tail_;
    }
  }

 private:
  bool logarithm_;
  Acc tail_;
  Acc reciprocal_;
};

// True if the rows are dense and begin and end on a multiple of V elements.
template <class T, int V>
bool has_wide_rows(const Fibres& rows, std::int64_t length) {
  if (rows.stride != 1 || length % V != 0) return false;
  if (reinterpret_cast<std::uintptr_t>(rows.data) % (V * sizeof(T)) != 0) return false;
  for (int d = 0; d < rows.outer.ndim; ++d) {
    if (rows.outer.sizes[d] > 1 && rows.outer.strides[d] % V != 0) return false;
  }
  return true;
}

}  // namespace

}  // namespace gantry::kernels::cuda
