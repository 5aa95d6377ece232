#include <gantry/tensor/reductions.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/promote.hpp>

#include "kernels/op_scope.hpp"
#include "kernels/reductions/reduce.hpp"
#include "kernels/reductions/variance.hpp"
#include "tensor/check.hpp"
#include "tensor/destination.hpp"
#include "tensor/reductions/reduction_rules.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

using kernels::Reduction;

// The dims that a reduction removes, and the result's shapes.
struct ReducedDims {
  Shape kept;     // with keepdim: 1 in place of the reduced sizes
  Shape removed;  // without keepdim
  std::int64_t length = 1;
  Dims dims;
};

ReducedDims reduced_dims(std::string_view op, const Tensor& self, const Axes& axes) {
  ReducedDims result;
  result.dims = detail::wrap_dims(op, axes, self);
  if (self.dim() == 0) return result;
  const Shape& sizes = self.sizes();
  for (int d = 0; d < sizes.size(); ++d) {
    const bool is_reduced =
        std::find(result.dims.begin(), result.dims.end(), d) != result.dims.end();
    result.kept.push_back(is_reduced ? 1 : sizes[d]);
    if (is_reduced) {
      result.length *= sizes[d];
    } else {
      result.removed.push_back(sizes[d]);
    }
  }
  return result;
}

constexpr std::array<std::string_view, 9> kReductionNames{
    "sum", "prod", "min", "max", "any", "all", "sum_squares", "sum_abs", "count_nonzero"};

// The caller's output, if any, and the operation's name for its errors.
struct Output {
  std::string_view op;
  Tensor* out = nullptr;
};

// The elements of a new tensor as an array of another shape.
TensorRef dense_ref(const Tensor& tensor, const Shape& sizes) {
  TensorRef ref;
  ref.data = tensor.data();
  ref.dtype = tensor.dtype();
  ref.ndim = sizes.size();
  std::int64_t stride = 1;
  for (int d = ref.ndim - 1; d >= 0; --d) {
    ref.sizes[d] = sizes[d];
    ref.strides[d] = stride;
    stride *= std::max<std::int64_t>(sizes[d], 1);
  }
  return ref;
}

Tensor run(Reduction op, const Tensor& self, const ReducedDims& how, bool keepdim, DType dtype,
           double divisor = 1, const Output& output = {}) {
  if (output.out != nullptr) {
    detail::Destination destination(output.op, output.out, keepdim ? how.kept : how.removed, dtype,
                                    {&self});
    kernels::reduce(detail::target_of(self), op, destination.tensor().view(how.kept).ref(),
                    self.ref(), divisor);
    return destination.finish();
  }
  Tensor out = empty(keepdim ? how.kept : how.removed, {.dtype = dtype, .device = self.device()});
  kernels::reduce(detail::target_of(self), op, dense_ref(out, how.kept), self.ref(), divisor);
  return out;
}

// The dtype of intermediate results, which are not yet rounded to a 16-bit dtype.
DType computing(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// `self` converted to the requested dtype of a sum or product. The kernel itself widens 16-bit
// floats to f32, with the same bits.
Tensor converted_to(const Tensor& self, DType dtype) {
  const bool is_half = self.dtype() == DType::f16 || self.dtype() == DType::bf16;
  return is_half && dtype == DType::f32 ? self : self.to(dtype);
}

// sum and prod, with an optional result dtype.
Tensor run_typed(std::string_view name, Reduction op, const Tensor& self, const Axes& axes,
                 bool keepdim, std::optional<DType> dtype, Tensor* out = nullptr) {
  const kernels::OpScope scope(name);
  detail::check_defined(name, "self", self);
  const ReducedDims how = reduced_dims(name, self, axes);
  const Output output{name, out};
  if (!dtype) return run(op, self, how, keepdim, detail::summed(self.dtype()), 1, output);
  return run(op, converted_to(self, *dtype), how, keepdim, *dtype, 1, output);
}

Tensor extremum(std::string_view name, Reduction op, const Tensor& self, const Axes& axes,
                bool keepdim, Tensor* out = nullptr) {
  const kernels::OpScope scope(name);
  detail::check_defined(name, "self", self);
  const ReducedDims how = reduced_dims(name, self, axes);
  detail::check_not_empty(name, self, axes, how.dims);
  return run(op, self, how, keepdim, self.dtype(), 1, {name, out});
}

// The variance or the standard deviation in the dtype of intermediate results.
Tensor run_moment(std::string_view name, const Tensor& self, const VarianceOptions& options,
                  bool is_root) {
  detail::check_defined(name, "self", self);
  detail::check_floating(name, self.dtype(), self.device());
  const ReducedDims how = reduced_dims(name, self, options.dims);
  const DType dtype = computing(self.dtype());
  const Tensor source = self.to(dtype);
  const auto length = static_cast<double>(how.length);
  const double divisor = std::max(0.0, length - options.correction);
  const Tensor center = run(Reduction::sum, source, how, true, dtype, length);
  Tensor result =
      run(Reduction::sum_squares, source.sub(center), how, options.keepdim, dtype, divisor);
  if (is_root) result = result.sqrt();
  kernels::repeat_variances(detail::target_of(self), dense_ref(result, how.kept), source.ref(),
                            divisor, is_root);
  return result;
}

}  // namespace

Tensor sum(const Tensor& self, const Axes& dims, bool keepdim, std::optional<DType> dtype) {
  return run_typed("sum", Reduction::sum, self, dims, keepdim, dtype);
}

Tensor prod(const Tensor& self, const Axes& dims, bool keepdim, std::optional<DType> dtype) {
  return run_typed("prod", Reduction::prod, self, dims, keepdim, dtype);
}

namespace {

Tensor run_mean(const Tensor& self, const Axes& dims, bool keepdim, std::optional<DType> dtype,
                Tensor* out) {
  const kernels::OpScope scope("mean");
  detail::check_defined("mean", "self", self);
  const DType result = dtype.value_or(self.dtype());
  if (!is_floating_point(result)) {
    throw DTypeError(fmt::format("mean(): could not infer output dtype. {} dtype must be either a "
                                 "floating point or complex "
                                 "dtype. Got: {}",
                                 dtype ? "Optional" : "Input", torch_name(result)),
                     self.device().str());
  }
  const ReducedDims how = reduced_dims("mean", self, dims);
  return run(Reduction::sum, self, how, keepdim, result, static_cast<double>(how.length),
             {"mean", out});
}

Tensor run_test(std::string_view name, Reduction op, const Tensor& self, const Axes& dims,
                bool keepdim, Tensor* out) {
  const kernels::OpScope scope(name);
  detail::check_defined(name, "self", self);
  return run(op, self, reduced_dims(name, self, dims), keepdim, DType::bool_, 1, {name, out});
}

}  // namespace

Tensor mean(const Tensor& self, const Axes& dims, bool keepdim, std::optional<DType> dtype) {
  return run_mean(self, dims, keepdim, dtype, nullptr);
}

Tensor amax(const Tensor& self, const Axes& dims, bool keepdim) {
  return extremum("amax", Reduction::max, self, dims, keepdim);
}

Tensor amin(const Tensor& self, const Axes& dims, bool keepdim) {
  return extremum("amin", Reduction::min, self, dims, keepdim);
}

Tensor max(const Tensor& self) { return extremum("max", Reduction::max, self, {}, false); }

Tensor min(const Tensor& self) { return extremum("min", Reduction::min, self, {}, false); }

Tensor any(const Tensor& self, const Axes& dims, bool keepdim) {
  return run_test("any", Reduction::any, self, dims, keepdim, nullptr);
}

Tensor all(const Tensor& self, const Axes& dims, bool keepdim) {
  return run_test("all", Reduction::all, self, dims, keepdim, nullptr);
}

Tensor count_nonzero(const Tensor& self, const Axes& dims) {
  const kernels::OpScope scope("count_nonzero");
  detail::check_defined("count_nonzero", "self", self);
  return run(Reduction::count_nonzero, self, reduced_dims("count_nonzero", self, dims), false,
             DType::i64);
}

Tensor norm(const Tensor& self, double p, const Axes& dims, bool keepdim) {
  const kernels::OpScope scope("norm");
  detail::check_defined("norm", "self", self);
  detail::check_floating("norm", self.dtype(), self.device());
  const ReducedDims how = reduced_dims("norm", self, dims);
  const DType dtype = computing(self.dtype());
  if (std::isinf(p)) {
    detail::check_not_empty("norm", self, dims, how.dims);
    return run(p > 0 ? Reduction::max : Reduction::min, self.abs(), how, keepdim, self.dtype());
  }
  if (p == 0) {
    return run(Reduction::count_nonzero, self, how, keepdim, DType::i64).to(self.dtype());
  }
  if (p == 1) return run(Reduction::sum_abs, self, how, keepdim, self.dtype());
  if (p == 2) {
    return run(Reduction::sum_squares, self, how, keepdim, dtype).sqrt().to(self.dtype());
  }
  const Tensor powers = self.to(dtype).abs().pow(p);
  return run(Reduction::sum, powers, how, keepdim, dtype).pow(1 / p).to(self.dtype());
}

Tensor var(const Tensor& self, const VarianceOptions& options) {
  const kernels::OpScope scope("var");
  return run_moment("var", self, options, false).to(self.dtype());
}

Tensor std(const Tensor& self, const VarianceOptions& options) {
  const kernels::OpScope scope("std");
  return run_moment("std", self, options, true).to(self.dtype());
}

Tensor logsumexp(const Tensor& self, const Axes& dims, bool keepdim) {
  const kernels::OpScope scope("logsumexp");
  detail::check_defined("logsumexp", "self", self);
  const DType result = is_floating_point(self.dtype()) ? self.dtype() : DType::f32;
  const ReducedDims how = reduced_dims("logsumexp", self, dims);
  const Shape& sizes = keepdim ? how.kept : how.removed;
  if (how.length == 0) {
    return full(sizes, -INFINITY, {.dtype = result, .device = self.device()});
  }
  const DType dtype = computing(result);
  const Tensor source = self.to(dtype);
  const Tensor largest = run(Reduction::max, source, how, true, dtype);
  // An infinite maximum would make the exponents NaN.
  const Tensor shift = where(largest.isinf(), 0, largest);
  const Tensor total = run(Reduction::sum, source.sub(shift).exp_(), how, true, dtype);
  return total.log().add(shift).view(sizes).to(result);
}

// With an output.
Tensor& sum_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim,
                std::optional<DType> dtype) {
  run_typed("sum", Reduction::sum, self, dims, keepdim, detail::dtype_for("sum", out, self, dtype),
            &out);
  return out;
}

Tensor& prod_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim,
                 std::optional<DType> dtype) {
  run_typed("prod", Reduction::prod, self, dims, keepdim,
            detail::dtype_for("prod", out, self, dtype), &out);
  return out;
}

Tensor& mean_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim,
                 std::optional<DType> dtype) {
  run_mean(self, dims, keepdim, detail::dtype_for("mean", out, self, dtype), &out);
  return out;
}

Tensor& amax_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim) {
  extremum("amax", Reduction::max, self, dims, keepdim, &out);
  return out;
}

Tensor& amin_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim) {
  extremum("amin", Reduction::min, self, dims, keepdim, &out);
  return out;
}

Tensor& any_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim) {
  run_test("any", Reduction::any, self, dims, keepdim, &out);
  return out;
}

Tensor& all_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim) {
  run_test("all", Reduction::all, self, dims, keepdim, &out);
  return out;
}

Tensor& count_nonzero_out(Tensor& out, const Tensor& self, const Axes& dims) {
  return detail::copy_result("count_nonzero", out, count_nonzero(self, dims));
}

Tensor& norm_out(Tensor& out, const Tensor& self, double p, const Axes& dims, bool keepdim) {
  return detail::copy_result("norm", out, norm(self, p, dims, keepdim));
}

Tensor& var_out(Tensor& out, const Tensor& self, const VarianceOptions& options) {
  return detail::copy_result("var", out, var(self, options));
}

Tensor& std_out(Tensor& out, const Tensor& self, const VarianceOptions& options) {
  return detail::copy_result("std", out, gantry::std(self, options));
}

Tensor& logsumexp_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim) {
  return detail::copy_result("logsumexp", out, logsumexp(self, dims, keepdim));
}

}  // namespace gantry
