// The different elements of a tensor.
#include <gantry/core/error.hpp>
#include <gantry/tensor/binning.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/promote.hpp>
#include <gantry/tensor/shape_ops.hpp>
#include <gantry/tensor/sorting.hpp>

#include "kernels/binning.hpp"
#include "kernels/observed_op.hpp"
#include "tensor/check.hpp"
#include "tensor/outputs.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

// The runs of equal elements of a 1-D tensor. `order`: the indices of its elements in `self`; if
// undefined, they are in place.
UniqueElements unique_runs(std::string_view op, const Tensor& self, const Tensor& elements,
                           const Tensor& order, bool return_inverse, bool return_counts) {
  const TensorOptions indices{.dtype = DType::i64, .device = self.device()};
  UniqueElements result;
  const std::int64_t n = elements.numel();
  if (n == 0) {
    result.values = elements.clone();
    if (return_inverse) result.inverse = empty(self.sizes(), indices);
    if (return_counts) result.counts = empty({0}, indices);
    return result;
  }
  const Tensor begins = cat({zeros({1}, {.dtype = DType::bool_, .device = self.device()}),
                             elements.narrow(0, 1, n - 1).ne(elements.narrow(0, 0, n - 1))});
  const Tensor runs = begins.cumsum(0);
  const std::int64_t count = runs[n - 1].item<std::int64_t>() + 1;
  const Tensor starts = empty({count}, indices);
  TensorRef inverse;
  inverse.dtype = DType::i64;
  if (return_inverse && order.defined()) {
    result.inverse = empty(self.sizes(), indices);
    inverse = result.inverse.ref();
  } else if (return_inverse) {
    result.inverse = runs.view(self.sizes());
  }
  kernels::note_op(op);
  kernels::run_starts(detail::target_of(self), starts.ref(), inverse, runs.ref(),
                      order.defined() ? order.ref() : runs.ref());
  result.values = elements.index_select(0, starts);
  if (return_counts) {
    result.counts = cat({starts.narrow(0, 1, count - 1), full({1}, n, indices)}).sub(starts);
  }
  return result;
}

// A number as a tensor of `like`'s device, or the tensor itself.
Tensor tensor_of(const Operand& operand, DType dtype, Device device) {
  if (operand.is_tensor()) return operand.tensor().to(dtype);
  return full({}, operand.number(), {.dtype = dtype, .device = device});
}

// The device of isin's operands, which are checked.
Device isin_device(const Operand& elements, const Operand& test_elements) {
  if (elements.is_tensor() && test_elements.is_tensor()) {
    return detail::common_device(
        "isin", {{"elements", elements.tensor()}, {"test_elements", test_elements.tensor()}});
  }
  detail::check_defined("isin", "elements", elements);
  detail::check_defined("isin", "test_elements", test_elements);
  if (elements.is_tensor()) return elements.tensor().device();
  if (test_elements.is_tensor()) return test_elements.tensor().device();
  throw InvalidArgument("isin: expected a tensor, but got two numbers");
}

Shape sizes_of(const Operand& operand) {
  return operand.is_tensor() ? operand.tensor().sizes() : Shape{};
}

}  // namespace

UniqueElements unique(const Tensor& self, bool /*sorted*/, bool return_inverse,
                      bool return_counts) {
  detail::check_defined("unique", "self", self);
  const Tensor flat = self.reshape({-1});
  if (!return_inverse) return unique_runs("unique", self, msort(flat), {}, false, return_counts);
  const ValuesAndIndices sorted = sort(flat);
  return unique_runs("unique", self, sorted.values, sorted.indices, true, return_counts);
}

UniqueElements unique_consecutive(const Tensor& self, bool return_inverse, bool return_counts) {
  detail::check_defined("unique_consecutive", "self", self);
  return unique_runs("unique_consecutive", self, self.reshape({-1}), {}, return_inverse,
                     return_counts);
}

Tensor isin(const Operand& elements, const Operand& test_elements, bool /*assume_unique*/,
            bool invert) {
  const Device device = isin_device(elements, test_elements);
  const DType dtype = result_type(elements, test_elements);
  const Tensor tested = tensor_of(test_elements, dtype, device).reshape({-1});
  if (tested.numel() == 0) {
    return full(sizes_of(elements), invert, {.dtype = DType::bool_, .device = device});
  }
  const Tensor sought = tensor_of(elements, dtype, device);
  const Tensor sorted = msort(tested);
  const Tensor places = searchsorted(sorted, sought).clamp(std::nullopt, tested.numel() - 1);
  const Tensor found = sorted.index_select(0, places.reshape({-1})).view(sought.sizes());
  return invert ? sought.ne(found) : sought.eq(found);
}

Tensor& isin_out(Tensor& out, const Operand& elements, const Operand& test_elements,
                 bool assume_unique, bool invert) {
  isin_device(elements, test_elements);
  const Tensor& any = elements.is_tensor() ? elements.tensor() : test_elements.tensor();
  detail::common_device("isin", {{"out", out, detail::Role::output}, {"elements", any}});
  detail::check_output("isin", "out", out, sizes_of(elements), DType::bool_);
  return out.copy_(isin(elements, test_elements, assume_unique, invert));
}

}  // namespace gantry
