#include "tensor/ordering/ordered_results.hpp"

#include <gantry/tensor/factories.hpp>

#include "tensor/outputs.hpp"
#include "tensor/overlap.hpp"
#include "tensor/same_device.hpp"

namespace gantry::detail {

OrderedResults::OrderedResults(std::string_view op, const Tensor& values, const Tensor& indices,
                               const Tensor& self)
    : op_(op), are_given_(true), results_{values, indices} {
  common_device(
      op, {{"values", values, Role::output}, {"indices", indices, Role::output}, {"self", self}});
}

OrderedResults::OrderedResults(std::string_view op, Only only, const Tensor& out,
                               const Tensor& self)
    : op_(op), only_(only), are_given_(true) {
  common_device(op, {{"out", out, Role::output}, {"self", self}});
  (only == Only::values ? results_.values : results_.indices) = out;
}

void OrderedResults::check(const Tensor& self, const Shape& shape) const {
  if (!are_given_) return;
  if (has_values()) {
    check_output(op_, only_ ? "out" : "values", results_.values, shape, self.dtype());
    check_no_overlap(op_, results_.values, self);
  }
  if (has_indices()) {
    check_output(op_, only_ ? "out" : "indices", results_.indices, shape, DType::i64);
    check_no_overlap(op_, results_.indices, self);
  }
  if (!only_) check_no_overlap(op_, results_.values, results_.indices);
}

void OrderedResults::prepare(const Tensor& self, const Shape& shape) {
  check(self, shape);
  values_dtype_ = self.dtype();
  if (!are_given_) {
    if (has_values()) {
      results_.values = empty(shape, {.dtype = self.dtype(), .device = self.device()});
    }
    if (has_indices()) {
      results_.indices = empty(shape, {.dtype = DType::i64, .device = self.device()});
    }
  }
  values_view_ = results_.values;
  indices_view_ = results_.indices;
}

void OrderedResults::keep_dim(int axis, int ndim) {
  for (Tensor* view : {&values_view_, &indices_view_}) {
    if (view->defined() && view->dim() < ndim) *view = view->unsqueeze(axis);
  }
}

void OrderedResults::copy_from(const Tensor& values, const Tensor& indices) const {
  if (has_values()) values_view_.copy_(values);
  if (has_indices()) indices_view_.copy_(indices);
}

TensorRef OrderedResults::reference(const Tensor& view, DType dtype) {
  if (view.defined()) return view.ref();
  TensorRef none;
  none.dtype = dtype;
  return none;
}

}  // namespace gantry::detail
