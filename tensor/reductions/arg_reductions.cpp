// Extrema with their indices.
#include <gantry/tensor/reductions.hpp>

#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/outputs.hpp>

#include "kernels/op_scope.hpp"
#include "kernels/reductions/reduce.hpp"
#include "tensor/check.hpp"
#include "tensor/ordering/ordered_results.hpp"
#include "tensor/reductions/reduction_rules.hpp"
#include "tensor/target_of.hpp"

namespace gantry {
namespace {

// The extreme values (optional) and their indices along one dim.
ValuesAndIndices run_arg(std::string_view name, bool largest, const Tensor& self, int dim,
                         bool keepdim, bool wants_values) {
  const kernels::OpScope scope(name);
  detail::check_defined(name, "self", self);
  const int axis = detail::wrap_dim(name, dim, self);
  const Tensor source = self.dim() == 0 ? self.view({1}) : self;
  detail::check_not_empty(name, source, axis, Dims{axis});
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
  const kernels::OpScope scope(name);
  detail::check_defined(name, "self", self);
  if (dim) return run_arg(name, largest, self, *dim, keepdim, false).indices;
  if (self.numel() == 0) detail::refuse_empty(name, self.device());
  const Tensor index = run_arg(name, largest, self.reshape({-1}), 0, false, false).indices;
  return keepdim ? index.view(Dims::filled(self.dim(), 1)) : index;
}

// Writes the extreme values and their indices to the caller's tensors.
void run_arg_out(std::string_view name, bool largest, Tensor& values, Tensor& indices,
                 const Tensor& self, int dim, bool keepdim) {
  detail::OrderedResults results(name, values, indices, self);
  const int axis = detail::wrap_dim(name, dim, self);
  Shape sizes = self.sizes();
  if (self.dim() > 0) {
    sizes[axis] = 1;
    if (!keepdim) sizes.erase(axis);
  }
  results.prepare(self, sizes);
  const ValuesAndIndices found = run_arg(name, largest, self, dim, keepdim, true);
  results.copy_from(found.values, found.indices);
}

}  // namespace

ValuesAndIndices max(const Tensor& self, Dim dim, bool keepdim) {
  return run_arg("max", true, self, dim, keepdim, true);
}

ValuesAndIndices min(const Tensor& self, Dim dim, bool keepdim) {
  return run_arg("min", false, self, dim, keepdim, true);
}

std::tuple<Tensor&, Tensor&> max_out(Tensor& values, Tensor& indices, const Tensor& self, Dim dim,
                                     bool keepdim) {
  run_arg_out("max", true, values, indices, self, dim, keepdim);
  return {values, indices};
}

std::tuple<Tensor&, Tensor&> min_out(Tensor& values, Tensor& indices, const Tensor& self, Dim dim,
                                     bool keepdim) {
  run_arg_out("min", false, values, indices, self, dim, keepdim);
  return {values, indices};
}

Tensor& max_out(Tensor& out, const Tensor& self) {
  return detail::copy_result("max", out, max(self));
}

Tensor& min_out(Tensor& out, const Tensor& self) {
  return detail::copy_result("min", out, min(self));
}

Tensor argmax(const Tensor& self, std::optional<Dim> dim, bool keepdim) {
  return run_arg_index("argmax", true, self, dim, keepdim);
}

Tensor argmin(const Tensor& self, std::optional<Dim> dim, bool keepdim) {
  return run_arg_index("argmin", false, self, dim, keepdim);
}

Tensor& argmax_out(Tensor& out, const Tensor& self, std::optional<Dim> dim, bool keepdim) {
  const kernels::OpScope scope("argmax");
  return detail::copy_result("argmax", out, argmax(self, dim, keepdim));
}

Tensor& argmin_out(Tensor& out, const Tensor& self, std::optional<Dim> dim, bool keepdim) {
  const kernels::OpScope scope("argmin");
  return detail::copy_result("argmin", out, argmin(self, dim, keepdim));
}

}  // namespace gantry
