#include <gantry/tensor/cumulative.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/promote.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "kernels/op_scope.hpp"
#include "kernels/ordering/sort.hpp"
#include "kernels/reductions/reduce.hpp"
#include "tensor/check.hpp"
#include "tensor/ordering/ordered_results.hpp"
#include "tensor/outputs.hpp"
#include "tensor/overlap.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

using detail::OrderedResults;

void extremum_into(OrderedResults& results, bool largest, const Tensor& self, int dim) {
  const int axis = detail::wrap_dim(results.op(), dim, self);
  const Tensor source = detail::at_least_1d(self);
  results.prepare(self, self.sizes());
  results.keep_dim(axis, source.dim());
  kernels::cumulative_extremum(detail::target_of(self), largest, results.values(),
                               results.indices(), source.ref(), axis);
}

// Checks the arguments of logcumsumexp. Returns the non-negative dim.
int check_logcumsumexp(const Tensor& self, int dim) {
  detail::check_floating("logcumsumexp", self.dtype(), self.device());
  return detail::wrap_dim("logcumsumexp", dim, self);
}

void run_logcumsumexp(const Tensor& out, const Tensor& self, int axis) {
  kernels::scan(detail::target_of(self), kernels::ScanOp::log_sum_exp,
                detail::at_least_1d(out).ref(), detail::at_least_1d(self).ref(), axis);
}

// The parts that diff joins, checked.
std::vector<Tensor> diff_parts(const Tensor& self, std::int64_t n, int dim,
                               const std::optional<Tensor>& prepend,
                               const std::optional<Tensor>& append) {
  detail::check_defined("diff", "self", self);
  detail::check_computes("diff", self);
  if (self.dim() == 0) {
    throw ShapeError("diff expects input to be at least one-dimensional", self.device().str());
  }
  if (n < 0) {
    throw InvalidArgument(fmt::format("diff: order must be non-negative but got {}", n),
                          self.device().str());
  }
  const int axis = detail::wrap_dim("diff", dim, self);
  const auto check_part = [&](std::string_view name, const Tensor& part) {
    detail::common_device("diff", {{"self", self}, {name, part}});
    if (part.dim() != self.dim()) {
      throw ShapeError(
          fmt::format("diff expects prepend or append to be the same dimension as input, but got "
                      "{} and {}",
                      part.dim(), self.dim()),
          self.device().str());
    }
    Shape expected = self.sizes();
    expected[axis] = part.size(axis);
    if (part.sizes() != expected) {
      throw ShapeError(
          fmt::format(
              "diff expects the shape of tensor to prepend or append to match that of input "
              "except along the differencing dimension, but got {} and {}",
              part.sizes().str(), self.sizes().str()),
          self.device().str());
    }
  };
  std::vector<Tensor> parts;
  if (prepend) {
    check_part("prepend", *prepend);
    parts.push_back(prepend->to(self.device()));  // from a peer device: the first part decides
  }
  parts.push_back(self);
  if (append) {
    check_part("append", *append);
    parts.push_back(*append);
  }
  return parts;
}

Tensor run_diff(const std::vector<Tensor>& parts, std::int64_t n, int dim) {
  const int axis = detail::wrap_dim("diff", dim, parts[0]);
  Tensor result = parts.size() == 1 ? parts[0] : cat(parts, axis);
  if (n == 0) return parts.size() == 1 ? result.clone() : result;
  for (; n > 0; --n) {
    const std::int64_t size = result.size(axis);
    if (size <= 1) return result.narrow(axis, 0, 0).clone();
    const Tensor next = result.narrow(axis, 1, size - 1);
    const Tensor previous = result.narrow(axis, 0, size - 1);
    result = result.dtype() == DType::bool_ ? next.logical_xor(previous) : next.sub(previous);
  }
  return result;
}

}  // namespace

ValuesAndIndices cummax(const Tensor& self, Dim dim) {
  const kernels::OpScope scope("cummax");
  detail::check_defined("cummax", "self", self);
  detail::check_computes("cummax", self);
  OrderedResults results("cummax");
  extremum_into(results, true, self, dim);
  return results.take();
}

std::tuple<Tensor&, Tensor&> cummax_out(Tensor& values, Tensor& indices, const Tensor& self,
                                        Dim dim) {
  const kernels::OpScope scope("cummax");
  OrderedResults results("cummax", values, indices, self);
  extremum_into(results, true, self, dim);
  return {values, indices};
}

ValuesAndIndices cummin(const Tensor& self, Dim dim) {
  const kernels::OpScope scope("cummin");
  detail::check_defined("cummin", "self", self);
  detail::check_computes("cummin", self);
  OrderedResults results("cummin");
  extremum_into(results, false, self, dim);
  return results.take();
}

std::tuple<Tensor&, Tensor&> cummin_out(Tensor& values, Tensor& indices, const Tensor& self,
                                        Dim dim) {
  const kernels::OpScope scope("cummin");
  OrderedResults results("cummin", values, indices, self);
  extremum_into(results, false, self, dim);
  return {values, indices};
}

Tensor logcumsumexp(const Tensor& self, Dim dim) {
  const kernels::OpScope scope("logcumsumexp");
  detail::check_defined("logcumsumexp", "self", self);
  detail::check_computes("logcumsumexp", self);
  const int axis = check_logcumsumexp(self, dim);
  const Tensor out = empty(self.sizes(), {.dtype = self.dtype(), .device = self.device()});
  run_logcumsumexp(out, self, axis);
  return out;
}

Tensor& logcumsumexp_out(Tensor& out, const Tensor& self, Dim dim) {
  const kernels::OpScope scope("logcumsumexp");
  detail::common_device("logcumsumexp", {{"out", out, detail::Role::output}, {"self", self}});
  const int axis = check_logcumsumexp(self, dim);
  detail::check_output("logcumsumexp", "out", out, self.sizes(), self.dtype());
  detail::check_no_overlap("logcumsumexp", out, self);
  run_logcumsumexp(out, self, axis);
  return out;
}

Tensor diff(const Tensor& self, std::int64_t n, Dim dim, const std::optional<Tensor>& prepend,
            const std::optional<Tensor>& append) {
  const kernels::OpScope scope("diff");
  return run_diff(diff_parts(self, n, dim, prepend, append), n, dim);
}

Tensor& diff_out(Tensor& out, const Tensor& self, std::int64_t n, Dim dim,
                 const std::optional<Tensor>& prepend, const std::optional<Tensor>& append) {
  const kernels::OpScope scope("diff");
  const std::vector<Tensor> parts = diff_parts(self, n, dim, prepend, append);
  detail::common_device("diff", {{"out", out, detail::Role::output}, {"self", self}});
  const int axis = detail::wrap_dim("diff", dim, self);
  Shape shape = self.sizes();
  shape[axis] = 0;
  for (const Tensor& part : parts) shape[axis] += part.size(axis);
  const std::vector<Operand> operands(parts.begin(), parts.end());
  shape[axis] = std::max<std::int64_t>(0, shape[axis] - n);
  detail::check_output("diff", "out", out, shape, result_type(operands));
  return out.copy_(run_diff(parts, n, dim));
}

}  // namespace gantry
