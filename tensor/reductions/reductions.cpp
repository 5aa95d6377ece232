#include <gantry/tensor/reductions.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/promote.hpp>

#include "kernels/op_scope.hpp"
#include "kernels/reductions/reduce.hpp"
#include "tensor/check.hpp"
#include "tensor/destination.hpp"
#include "tensor/reductions/reduction_rules.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

using detail::dense_ref;
using detail::reduced_dims;
using detail::ReducedDims;
using kernels::Reduction;

// The caller's output, if any, and the operation's name for its errors.
struct Output {
  std::string_view op;
  Tensor* out = nullptr;
};

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
  detail::check_computes("mean", result);
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
  if (p == 2) return run(Reduction::norm2, self, how, keepdim, self.dtype());
  const Tensor powers = self.to(dtype).abs().pow(p);
  return run(Reduction::sum, powers, how, keepdim, dtype).pow(1 / p).to(self.dtype());
}

namespace {

Tensor run_log_sum_exp(const Tensor& self, const Axes& dims, bool keepdim, Tensor* out) {
  const kernels::OpScope scope("logsumexp");
  detail::check_defined("logsumexp", "self", self);
  detail::check_computes("logsumexp", self);
  const DType result = is_floating_point(self.dtype()) ? self.dtype() : DType::f32;
  const ReducedDims how = reduced_dims("logsumexp", self, dims);
  return run(Reduction::log_sum_exp, self.to(result), how, keepdim, result, 1, {"logsumexp", out});
}

}  // namespace

Tensor logsumexp(const Tensor& self, const Axes& dims, bool keepdim) {
  return run_log_sum_exp(self, dims, keepdim, nullptr);
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

Tensor& logsumexp_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim) {
  run_log_sum_exp(self, dims, keepdim, &out);
  return out;
}

}  // namespace gantry
