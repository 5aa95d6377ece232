#include <gantry/tensor/indexing.hpp>

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "kernels/indexing.hpp"
#include "tensor/check.hpp"
#include "tensor/overlap.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

void check_index_dtype(std::string_view op, const Tensor& index) {
  if (index.dtype() != DType::i32 && index.dtype() != DType::i64) {
    throw DTypeError(fmt::format("{}(): Expected dtype int32 or int64 for index, but got {}", op,
                                 torch_name(index.dtype())),
                     index.device().str());
  }
}

// `tensor`, or a 1-D view if it is 0-dim.
Tensor at_least_1d(const Tensor& tensor) { return tensor.dim() == 0 ? tensor.view({1}) : tensor; }

void check_index_dims(std::string_view op, const Tensor& self, const Tensor& index,
                      std::string_view other) {
  if (index.dim() != self.dim()) {
    throw ShapeError(
        fmt::format("{}(): Index tensor must have the same number of dimensions as {} tensor, but "
                    "got {} and {}",
                    op, other, index.dim(), self.dim()),
        self.device().str());
  }
}

// True if index is no larger than self along every dim but `dim`.
bool fits(const Tensor& index, const Tensor& self, int dim) {
  for (int d = 0; d < index.dim(); ++d) {
    if (d != dim && index.size(d) > self.size(d)) return false;
  }
  return true;
}

// Checks the arguments of scatter, except that self is writable. Returns the non-negative dim. A
// number counts as a source of the index's shape.
int check_scatter(std::string_view op, const Tensor& self, int dim, const Tensor& index,
                  const Operand& source) {
  const Tensor& shaped = source.is_tensor() ? source.tensor() : index;
  detail::common_device(op, {{"self", self, true}, {"index", index}, {"src", shaped}});
  const int axis = detail::wrap_dim(op, dim, self);
  check_index_dtype(op, index);
  if (!source.is_tensor()) {
    detail::check_fits(op, source.number(), self.dtype());
  } else if (source.tensor().dtype() != self.dtype()) {
    throw DTypeError(
        fmt::format("{}(): Expected self.dtype to be equal to src.dtype, but got {} and {}", op,
                    torch_name(self.dtype()), torch_name(source.tensor().dtype())),
        self.device().str());
  }
  const Tensor out = at_least_1d(self);
  const Tensor positions = at_least_1d(index);
  const Tensor values = at_least_1d(shaped);
  check_index_dims(op, out, positions, "self");
  check_index_dims(op, values, positions, "src");
  if (!fits(positions, out, axis) || !fits(positions, values, -1)) {
    throw ShapeError(
        fmt::format("{}(): Expected index {} to be no larger than self {} apart from dimension {} "
                    "and to be no "
                    "larger size than src {}",
                    op, positions.sizes().str(), out.sizes().str(), axis, values.sizes().str()),
        self.device().str());
  }
  return axis;
}

// Runs a scatter whose arguments are checked.
void run_scatter(const Tensor& self, int axis, const Tensor& index, const Operand& source,
                 bool accumulate) {
  const Tensor values = source.is_tensor()
                            ? source.tensor()
                            : self.new_full({}, source.number()).expand(index.sizes());
  kernels::scatter({accumulate ? "scatter_add" : "scatter"}, detail::target_of(self), at_least_1d(self).ref(), axis, at_least_1d(index).ref(),
                   at_least_1d(values).ref(), accumulate ? kernels::ScatterMode::add : kernels::ScatterMode::replace);
}

void scatter_into(std::string_view op, const Tensor& self, int dim, const Tensor& index,
                  const Operand& source, bool accumulate) {
  const int axis = check_scatter(op, self, dim, index, source);
  detail::check_writable(op, self);
  detail::check_no_overlap(op, self, index);
  if (source.is_tensor()) detail::check_no_overlap(op, self, source.tensor());
  run_scatter(self, axis, index, source, accumulate);
}

}  // namespace

Tensor index_select(const Tensor& self, int dim, const Tensor& index) {
  detail::common_device("index_select", {{"self", self}, {"index", index}});
  const int axis = detail::wrap_dim("index_select", dim, self);
  check_index_dtype("index_select", index);
  if (index.dim() > 1) {
    throw ShapeError(
        fmt::format(
            "index_select(): Index is supposed to be a vector, but got dim: {} with shape {}",
            index.dim(), index.sizes().str()),
        self.device().str());
  }
  const Tensor source = at_least_1d(self);
  Shape sizes = source.sizes();
  sizes[axis] = index.numel();
  const Tensor out = empty(sizes, self.options());
  kernels::index_select({"index_select"}, detail::target_of(self), out.ref(), source.ref(), axis,
                        at_least_1d(index).ref());
  return self.dim() == 0 && index.numel() == 1 ? out.view(Shape{}) : out;
}

Tensor gather(const Tensor& self, int dim, const Tensor& index) {
  detail::common_device("gather", {{"self", self}, {"index", index}});
  const int axis = detail::wrap_dim("gather", dim, self);
  check_index_dtype("gather", index);
  const Tensor source = at_least_1d(self);
  const Tensor positions = at_least_1d(index);
  check_index_dims("gather", source, positions, "input");
  if (!fits(positions, source, axis)) {
    throw ShapeError(
        fmt::format(
            "gather(): Expected index {} to be no larger than self {} apart from dimension {}",
            positions.sizes().str(), source.sizes().str(), axis),
        self.device().str());
  }
  const Tensor out = empty(positions.sizes(), {.dtype = self.dtype(), .device = self.device()});
  kernels::gather(detail::target_of(self), out.ref(), source.ref(), axis, positions.ref());
  return out.view(index.sizes());
}

Tensor scatter(const Tensor& self, int dim, const Tensor& index, const Operand& source) {
  const int axis = check_scatter("scatter", self, dim, index, source);
  Tensor result = self.clone();
  run_scatter(result, axis, index, source, false);
  return result;
}

Tensor& Tensor::scatter_(int dim, const Tensor& index, const Operand& source) const {
  scatter_into("scatter", *this, dim, index, source, false);
  return handle();
}

Tensor& Tensor::scatter_add_(int dim, const Tensor& index, const Tensor& source) const {
  scatter_into("scatter_add", *this, dim, index, source, true);
  return handle();
}

}  // namespace gantry
