// Variances, standard deviations and their means.
#include <gantry/tensor/reductions.hpp>

#include <algorithm>

#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/statistics.hpp>

#include "kernels/op_scope.hpp"
#include "kernels/reductions/variance.hpp"
#include "tensor/check.hpp"
#include "tensor/destination.hpp"
#include "tensor/reductions/reduction_rules.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

// A variance or standard deviation, and the mean, if it was asked for.
struct Moments {
  Tensor spread;
  Tensor mean;
};

// The moments of `self`, a standard deviation if `is_root`. `op` is the name in errors. `out` gets
// the result, if there is one.
Moments run_moments(std::string_view op, const Tensor& self, const VarianceOptions& options,
                    bool is_root, bool wants_mean, Tensor* out = nullptr) {
  detail::check_defined(op, "self", self);
  detail::check_floating(op, self.dtype(), self.device());
  const detail::ReducedDims how = detail::reduced_dims(op, self, options.dims);
  const Shape& sizes = options.keepdim ? how.kept : how.removed;
  const double divisor = std::max(0.0, static_cast<double>(how.length) - options.correction);
  detail::Destination destination(op, out, sizes, self.dtype(), {&self});
  Tensor mean;
  TensorRef means;
  if (wants_mean) {
    mean = empty(sizes, {.dtype = self.dtype(), .device = self.device()});
    means = detail::dense_ref(mean, how.kept);
  }
  kernels::variance(detail::target_of(self), is_root,
                    detail::dense_ref(destination.tensor(), how.kept), means, self.ref(), divisor);
  return {destination.finish(), mean};
}

}  // namespace

Tensor var(const Tensor& self, const VarianceOptions& options) {
  const kernels::OpScope scope("var");
  return run_moments("var", self, options, false, false).spread;
}

Tensor std(const Tensor& self, const VarianceOptions& options) {
  const kernels::OpScope scope("std");
  return run_moments("std", self, options, true, false).spread;
}

StdMean std_mean(const Tensor& self, const VarianceOptions& options) {
  const kernels::OpScope scope("std_mean");
  const auto [deviation, mean] = run_moments("std", self, options, true, true);
  return {deviation, mean};
}

VarMean var_mean(const Tensor& self, const VarianceOptions& options) {
  const kernels::OpScope scope("var_mean");
  const auto [variance, mean] = run_moments("var", self, options, false, true);
  return {variance, mean};
}

Tensor& var_out(Tensor& out, const Tensor& self, const VarianceOptions& options) {
  const kernels::OpScope scope("var");
  run_moments("var", self, options, false, false, &out);
  return out;
}

Tensor& std_out(Tensor& out, const Tensor& self, const VarianceOptions& options) {
  const kernels::OpScope scope("std");
  run_moments("std", self, options, true, false, &out);
  return out;
}

}  // namespace gantry
