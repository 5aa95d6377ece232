// Arithmetic of Note [Repeated variances], shared by the host and the GPU.
#pragma once

#include <cstdint>

#include "kernels/reductions/wide_sum.inl"

namespace gantry::kernels {

inline constexpr int kVarianceLanes = 128;

// The variance of one output's elements.
class ScaledVariance {
 public:
  GANTRY_HD ScaledVariance(const ReducePlan& plan, std::int64_t output)
      : plan_(plan),
        base_(plan.source.kept.offset(output)),
        scale_(plan.source.dtype == DType::f64 ? 0x1p-600 : 1.0),
        first_(element_as_f64(plan.source.data, plan.source.dtype, base_) * scale_) {}

  // Element `k`, scaled, from the first element on.
  GANTRY_HD double element(std::int64_t k) const {
    const ReduceSource& source = plan_.source;
    return element_as_f64(source.data, source.dtype, base_ + source.reduced.offset(k)) * scale_ -
           first_;
  }
  // The sum of a lane's elements.
  GANTRY_HD double lane_sum(int lane) const {
    double sum = 0;
    for_lane(lane, [&sum](double element) { sum += element; });
    return sum;
  }
  GANTRY_HD double mean(double sum) const { return sum / static_cast<double>(plan_.length); }
  // The sum of the squared distances of a lane's elements from the mean.
  GANTRY_HD double lane_squares(int lane, double mean) const {
    double sum = 0;
    for_lane(lane, [&sum, mean](double element) {
      const double distance = element - mean;
      sum += distance * distance;
    });
    return sum;
  }
  // The result for the sum of squared distances.
  GANTRY_HD double result(double squares) const {
    const double variance = squares / plan_.divisor;
    if (plan_.op == Reduction::deviation) return math::sqrt(variance) / scale_;
    return variance / scale_ / scale_;
  }
  // The mean of the elements as they are.
  GANTRY_HD double unscaled(double mean) const { return (mean + first_) / scale_; }

 private:
  template <class F>
  GANTRY_HD void for_lane(int lane, const F& f) const {
    constexpr int kBatch = 8;  // loads of a GPU in flight
    const ReduceSource& source = plan_.source;
    double batch[kBatch];
    for (std::int64_t k = lane; k < source.length; k += kBatch * kVarianceLanes) {
      for (int i = 0; i < kBatch; ++i) {
        const std::int64_t at = k + i * kVarianceLanes;
        if (at < source.length) {
          batch[i] = element_as_f64(source.data, source.dtype, base_ + source.reduced.offset(at));
        }
      }
      for (int i = 0; i < kBatch; ++i) {
        if (k + i * kVarianceLanes < source.length) f(batch[i] * scale_ - first_);
      }
    }
  }

  const ReducePlan& plan_;
  std::int64_t base_;  // of the output's elements
  double scale_;
  double first_;  // the first element
};

// The results of a plan: a variance or deviation, and beside it a mean or none.
template <class T>
struct VarianceResults {
  T* spread;
  T* mean;

  GANTRY_HD VarianceResults(const ReducePlan& plan, std::int64_t output) {
    const std::int64_t at = plan.kept_out.offset(output);
    spread = static_cast<T*>(plan.out) + at;
    mean = plan.second_out == nullptr ? nullptr : static_cast<T*>(plan.second_out) + at;
  }
  // True if all are as they should be.
  [[nodiscard]] GANTRY_HD bool are_finite() const {
    return is_finite(*spread) && (mean == nullptr || is_finite(*mean));
  }
  // Replaces each that is not finite.
  GANTRY_HD void replace(const ScaledVariance& by, double squares, double by_mean) const {
    if (!is_finite(*spread)) *spread = from_accumulator<T>(by.result(squares));
    if (mean != nullptr && !is_finite(*mean)) *mean = from_accumulator<T>(by.unscaled(by_mean));
  }
};

}  // namespace gantry::kernels
