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

#include "kernels/observed_op.hpp"
#include "kernels/reductions/reduce.hpp"
#include "tensor/check.hpp"
#include "tensor/destination.hpp"
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
    kernels::note_op(output.op);
    kernels::reduce(detail::target_of(self), op, destination.tensor().view(how.kept).ref(),
                    self.ref(), divisor);
    return destination.finish();
  }
  Tensor out = empty(keepdim ? how.kept : how.removed, {.dtype = dtype, .device = self.device()});
  kernels::note_op(kReductionNames[static_cast<std::size_t>(op)]);
  kernels::reduce(detail::target_of(self), op, dense_ref(out, how.kept), self.ref(), divisor);
  return out;
}

// The dtype of sums and products of `dtype`.
DType summed(DType dtype) { return is_floating_point(dtype) ? dtype : DType::i64; }

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
  detail::check_defined(name, "self", self);
  const ReducedDims how = reduced_dims(name, self, axes);
  const Output output{name, out};
  if (!dtype) return run(op, self, how, keepdim, summed(self.dtype()), 1, output);
  return run(op, converted_to(self, *dtype), how, keepdim, *dtype, 1, output);
}

// The dtype of a sum into `out`: that of `out`, if a result of dtype `natural` can be cast to it.
std::optional<DType> dtype_for(std::string_view op, const Tensor& out, const Tensor& self,
                               std::optional<DType> given) {
  detail::check_defined(op, "self", self);
  detail::check_defined(op, "out", out);
  if (given || !can_cast(summed(self.dtype()), out.dtype())) return given;
  return out.dtype();
}

// Copies `result` to `out`, after the checks of a Destination.
Tensor& copy_result(std::string_view op, Tensor& out, const Tensor& result) {
  detail::check_defined(op, "out", out);
  detail::check_output(op, out, result.sizes(), result.dtype(), result);
  return out.copy_(result);
}

// Throws DTypeError unless `given`, or the dtype of `self` if absent, is floating.
void check_floating(std::string_view op, const Tensor& self, std::optional<DType> given = {}) {
  detail::check_defined(op, "self", self);
  const DType dtype = given.value_or(self.dtype());
  if (!is_floating_point(dtype)) {
    throw DTypeError(
        fmt::format("{}: expected a tensor of a floating type, but got {}", op, torch_name(dtype)),
        self.device().str());
  }
}

[[noreturn]] void refuse_empty(std::string_view op, Device device) {
  throw ShapeError(
      fmt::format("{}(): Expected reduction dim to be specified for input.numel() == 0. Specify "
                  "the reduction dim with the 'dim' argument.",
                  op),
      device.str());
}

// Throws ShapeError for an empty reduction, for operations that have no identity.
void check_not_empty(std::string_view op, const Tensor& self, const Axes& axes, const Dims& dims) {
  if (self.numel() != 0) return;
  if (axes.all()) refuse_empty(op, self.device());
  for (const std::int64_t d : dims) {
    if (self.size(static_cast<int>(d)) == 0) {
      throw ShapeError(fmt::format("{}(): Expected reduction dim {} to have non-zero size.", op, d),
                       self.device().str());
    }
  }
}

Tensor extremum(std::string_view name, Reduction op, const Tensor& self, const Axes& axes,
                bool keepdim, Tensor* out = nullptr) {
  detail::check_defined(name, "self", self);
  const ReducedDims how = reduced_dims(name, self, axes);
  check_not_empty(name, self, axes, how.dims);
  return run(op, self, how, keepdim, self.dtype(), 1, {name, out});
}

// The extreme values (optional) and their indices along one dim.
ValuesAndIndices run_arg(std::string_view name, bool largest, const Tensor& self, int dim,
                         bool keepdim, bool wants_values) {
  detail::check_defined(name, "self", self);
  const int axis = detail::wrap_dim(name, dim, self);
  const Tensor source = self.dim() == 0 ? self.view({1}) : self;
  check_not_empty(name, source, axis, Dims{axis});
  Shape sizes = source.sizes();
  sizes[axis] = 1;
  ValuesAndIndices result;
  result.indices = empty(sizes, {.dtype = DType::i64, .device = self.device()});
  if (wants_values) {
    result.values = empty(sizes, {.dtype = self.dtype(), .device = self.device()});
  }
  TensorRef values = result.indices.ref();
  values.data = nullptr;
  values.dtype = self.dtype();
  if (wants_values) values = result.values.ref();
  kernels::note_op(name);
  kernels::arg_reduce(detail::target_of(self), largest, values, result.indices.ref(), source.ref(),
                      axis);
  if (!keepdim || self.dim() == 0) {
    sizes.erase(axis);
    result.indices = result.indices.view(sizes);
    if (wants_values) result.values = result.values.view(sizes);
  }
  return result;
}

Tensor run_arg_index(std::string_view name, bool largest, const Tensor& self,
                     std::optional<int> dim, bool keepdim) {
  detail::check_defined(name, "self", self);
  if (dim) return run_arg(name, largest, self, *dim, keepdim, false).indices;
  if (self.numel() == 0) refuse_empty(name, self.device());
  const Tensor index = run_arg(name, largest, self.reshape({-1}), 0, false, false).indices;
  return keepdim ? index.view(Dims::filled(self.dim(), 1)) : index;
}

Tensor run_scan(std::string_view name, kernels::ScanOp op, const Tensor& self, int dim,
                std::optional<DType> dtype, Tensor* given = nullptr) {
  detail::check_defined(name, "self", self);
  const int axis = detail::wrap_dim(name, dim, self);
  const DType wanted = dtype.value_or(summed(self.dtype()));
  const Tensor converted = dtype ? self.to(*dtype) : self;
  const Tensor source = self.dim() == 0 ? converted.view({1}) : converted;
  const DType summing = summed(source.dtype());
  // Sums of narrow integers are i64 first.
  detail::Destination destination(name, wanted == summing ? given : nullptr, self.sizes(), summing,
                                  {&source});
  kernels::note_op(name);
  kernels::scan(detail::target_of(self), op, destination.tensor().view(source.sizes()).ref(),
                source.ref(), axis);
  const Tensor result = destination.finish().to(wanted);
  return given != nullptr && wanted != summing ? copy_result(name, *given, result) : result;
}

Tensor run_softmax(std::string_view name, bool logarithm, const Tensor& self, int dim,
                   std::optional<DType> dtype, Tensor* out = nullptr) {
  check_floating(name, self, dtype);
  const int axis = detail::wrap_dim(name, dim, self);
  const Tensor converted = dtype ? self.to(*dtype) : self;
  const Tensor source = self.dim() == 0 ? converted.view({1}) : converted;
  detail::Destination destination(name, out, self.sizes(), source.dtype(), {&source});
  kernels::note_op(name);
  kernels::softmax(detail::target_of(self), logarithm,
                   destination.tensor().view(source.sizes()).ref(), source.ref(), axis);
  return destination.finish();
}

// The variance in the dtype of intermediate results.
Tensor run_var(std::string_view name, const Tensor& self, const VarianceOptions& options) {
  check_floating(name, self);
  const ReducedDims how = reduced_dims(name, self, options.dims);
  const DType dtype = computing(self.dtype());
  const Tensor source = self.to(dtype);
  const auto length = static_cast<double>(how.length);
  const Tensor center = run(Reduction::sum, source, how, true, dtype, length);
  return run(Reduction::sum_squares, source.sub(center), how, options.keepdim, dtype,
             std::max(0.0, length - options.correction));
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

ValuesAndIndices max(const Tensor& self, int dim, bool keepdim) {
  return run_arg("max", true, self, dim, keepdim, true);
}

ValuesAndIndices min(const Tensor& self, int dim, bool keepdim) {
  return run_arg("min", false, self, dim, keepdim, true);
}

Tensor argmax(const Tensor& self, std::optional<int> dim, bool keepdim) {
  return run_arg_index("argmax", true, self, dim, keepdim);
}

Tensor argmin(const Tensor& self, std::optional<int> dim, bool keepdim) {
  return run_arg_index("argmin", false, self, dim, keepdim);
}

Tensor any(const Tensor& self, const Axes& dims, bool keepdim) {
  return run_test("any", Reduction::any, self, dims, keepdim, nullptr);
}

Tensor all(const Tensor& self, const Axes& dims, bool keepdim) {
  return run_test("all", Reduction::all, self, dims, keepdim, nullptr);
}

Tensor count_nonzero(const Tensor& self, const Axes& dims) {
  detail::check_defined("count_nonzero", "self", self);
  return run(Reduction::count_nonzero, self, reduced_dims("count_nonzero", self, dims), false,
             DType::i64);
}

Tensor norm(const Tensor& self, double p, const Axes& dims, bool keepdim) {
  check_floating("norm", self);
  const ReducedDims how = reduced_dims("norm", self, dims);
  const DType dtype = computing(self.dtype());
  if (std::isinf(p)) {
    check_not_empty("norm", self, dims, how.dims);
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
  return run_var("var", self, options).to(self.dtype());
}

Tensor std(const Tensor& self, const VarianceOptions& options) {
  return run_var("std", self, options).sqrt().to(self.dtype());
}

Tensor logsumexp(const Tensor& self, const Axes& dims, bool keepdim) {
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

Tensor cumsum(const Tensor& self, int dim, std::optional<DType> dtype) {
  return run_scan("cumsum", kernels::ScanOp::sum, self, dim, dtype);
}

Tensor cumprod(const Tensor& self, int dim, std::optional<DType> dtype) {
  return run_scan("cumprod", kernels::ScanOp::product, self, dim, dtype);
}

Tensor softmax(const Tensor& self, int dim, std::optional<DType> dtype) {
  return run_softmax("softmax", false, self, dim, dtype);
}

Tensor log_softmax(const Tensor& self, int dim, std::optional<DType> dtype) {
  return run_softmax("log_softmax", true, self, dim, dtype);
}

// With an output.
Tensor& sum_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim,
                std::optional<DType> dtype) {
  run_typed("sum", Reduction::sum, self, dims, keepdim, dtype_for("sum", out, self, dtype), &out);
  return out;
}

Tensor& prod_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim,
                 std::optional<DType> dtype) {
  run_typed("prod", Reduction::prod, self, dims, keepdim, dtype_for("prod", out, self, dtype),
            &out);
  return out;
}

Tensor& mean_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim,
                 std::optional<DType> dtype) {
  run_mean(self, dims, keepdim, dtype_for("mean", out, self, dtype), &out);
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

Tensor& argmax_out(Tensor& out, const Tensor& self, std::optional<int> dim, bool keepdim) {
  return copy_result("argmax", out, argmax(self, dim, keepdim));
}

Tensor& argmin_out(Tensor& out, const Tensor& self, std::optional<int> dim, bool keepdim) {
  return copy_result("argmin", out, argmin(self, dim, keepdim));
}

Tensor& norm_out(Tensor& out, const Tensor& self, double p, const Axes& dims, bool keepdim) {
  return copy_result("norm", out, norm(self, p, dims, keepdim));
}

Tensor& var_out(Tensor& out, const Tensor& self, const VarianceOptions& options) {
  return copy_result("var", out, var(self, options));
}

Tensor& std_out(Tensor& out, const Tensor& self, const VarianceOptions& options) {
  return copy_result("std", out, gantry::std(self, options));
}

Tensor& logsumexp_out(Tensor& out, const Tensor& self, const Axes& dims, bool keepdim) {
  return copy_result("logsumexp", out, logsumexp(self, dims, keepdim));
}

Tensor& cumsum_out(Tensor& out, const Tensor& self, int dim, std::optional<DType> dtype) {
  run_scan("cumsum", kernels::ScanOp::sum, self, dim, dtype_for("cumsum", out, self, dtype), &out);
  return out;
}

Tensor& cumprod_out(Tensor& out, const Tensor& self, int dim, std::optional<DType> dtype) {
  run_scan("cumprod", kernels::ScanOp::product, self, dim, dtype_for("cumprod", out, self, dtype),
           &out);
  return out;
}

Tensor& softmax_out(Tensor& out, const Tensor& self, int dim, std::optional<DType> dtype) {
  run_softmax("softmax", false, self, dim, dtype, &out);
  return out;
}

Tensor& log_softmax_out(Tensor& out, const Tensor& self, int dim, std::optional<DType> dtype) {
  run_softmax("log_softmax", true, self, dim, dtype, &out);
  return out;
}

}  // namespace gantry
