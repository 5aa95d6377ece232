#include "kernels/reductions/variance.hpp"

#include <cstdint>

#include "kernels/impl/reduce.inl"
#include "kernels/impl/variance.inl"
#include "kernels/input.hpp"

namespace gantry::kernels::host {

namespace {

// The tree over the values of the lanes.
template <class Value>
double merge_lanes(const Value& value_of) {
  double lanes[kVarianceLanes];
  for (int lane = 0; lane < kVarianceLanes; ++lane) lanes[lane] = value_of(lane);
  for (int half = kVarianceLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace

void repeat_variances(const ReducePlan& plan) {
  dispatch_floating("var", plan.out_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t output = 0; output < plan.outputs; ++output) {
      const VarianceResults<T> results(plan, output);
      if (results.are_finite()) continue;
      const ScaledVariance variance(plan, output);
      const double sum = merge_lanes([&](int lane) { return variance.lane_sum(lane); });
      if (!is_finite(sum)) continue;
      const double mean = variance.mean(sum);
      const double squares =
          merge_lanes([&](int lane) { return variance.lane_squares(lane, mean); });
      results.replace(variance, squares, mean);
    }
  });
}

}  // namespace gantry::kernels::host
