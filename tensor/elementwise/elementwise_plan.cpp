#include "tensor/elementwise/elementwise_plan.hpp"

#include <fmt/format.h>

#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/promote.hpp>

#include "tensor/check.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/named_ops.hpp"
#include "tensor/overlap.hpp"
#include "tensor/peer_operands.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry::detail {

ElementwisePlan::ElementwisePlan(std::string_view op, Tensor* out,
                                 std::initializer_list<Argument> arguments, Use use)
    : scope_(op), op_(op), out_(out) {
  for (const Argument& argument : arguments) {
    is_condition_[static_cast<std::size_t>(count_)] = argument.is_condition;
    operands_[static_cast<std::size_t>(count_++)] = &argument.operand;
  }
  if (!adopt_common()) promote(arguments);
  if (use == Use::computes) check_computes(op_, promoted_);
}

bool ElementwisePlan::adopt_common() {
  const Tensor* first = nullptr;
  for (int i = 0; i < count_; ++i) {
    if (!operand(i).is_tensor()) continue;
    const Tensor& tensor = operand(i).tensor();
    if (!tensor.defined()) return false;
    if (first == nullptr) {
      first = &tensor;
    } else if (tensor.dtype() != first->dtype() || tensor.device() != first->device() ||
               tensor.sizes() != first->sizes()) {
      return false;
    }
  }
  if (first == nullptr) return false;
  if (out_ != nullptr && (!out_->defined() || out_->device() != first->device())) return false;
  for (int i = 0; i < count_; ++i) {
    if (!operand(i).is_tensor() && operand(i).number().category() > category(first->dtype()))
      return false;
  }
  device_ = first->device();
  shape_ = first->sizes();
  promoted_ = first->dtype();
  return true;
}

void ElementwisePlan::promote(std::initializer_list<Argument> arguments) {
  std::vector<NamedTensor> tensors;
  std::vector<Operand> operands;
  std::vector<Operand> elements;  // a condition does not promote
  tensors.reserve(kMaxOperands + 1);
  operands.reserve(kMaxOperands);
  elements.reserve(kMaxOperands);
  if (out_ != nullptr) tensors.push_back({"out", *out_, Role::in_place});
  bool any_tensor = false;
  for (const Argument& argument : arguments) {
    operands.push_back(argument.operand);
    if (!argument.is_condition) elements.push_back(argument.operand);
    any_tensor = any_tensor || argument.operand.is_tensor();
  }
  const bool conditions_last = takes_peer_operands();  // which then do not decide the device
  for (const bool is_last : {false, true}) {
    for (const Argument& argument : arguments) {
      if ((conditions_last && argument.is_condition) != is_last) continue;
      if (!argument.operand.is_tensor()) continue;
      tensors.push_back({argument.name, argument.operand.tensor()});
    }
  }
  if (!any_tensor) {
    throw InvalidArgument(
        fmt::format("{}: expected at least one tensor, but got only numbers", op_));
  }
  device_ = common_device(op_, tensors, CpuScalars::allowed);
  for (const Operand& operand : operands) {
    if (!operand.is_tensor()) continue;
    shape_ = common_shape(op_, {&shape_, &operand.tensor().sizes()}, device_);
  }
  promoted_ = result_type(elements);
}

void ElementwisePlan::check_out(DType result) const {
  if (!can_cast(result, out_->dtype())) {
    throw DTypeError(fmt::format("{}: result type {} can't be cast to the desired output type {}",
                                 op_, torch_name(result), torch_name(out_->dtype())),
                     device_.str());
  }
  check_out_shape(op_, *out_, shape_);
  check_writable(op_, *out_);
  for (int i = 0; i < count_; ++i) {
    if (operand(i).is_tensor()) check_no_partial_overlap(op_, *out_, operand(i).tensor());
  }
}

void ElementwisePlan::set_types(DType compute, DType result) {
  if (out_ != nullptr) check_out(result);
  // The output is allocated before inputs are converted, because its shape may be too large.
  if (out_ != nullptr && out_->dtype() == result) {
    output_ = *out_;
  } else {
    output_ = empty_as(op_, shape_, {.dtype = result, .device = device_});
  }
  for (int i = 0; i < count_; ++i) {
    if (!operand(i).is_tensor()) continue;
    const Tensor& tensor = operand(i).tensor();
    // Also a 0-dim CPU tensor among GPU tensors, whose value becomes a kernel argument.
    const auto at = static_cast<std::size_t>(i);
    inputs_[at] = &tensor;
    if (tensor.dtype() == compute || is_condition_[at]) continue;
    converted_[at] = tensor.to(compute);
    inputs_[at] = &converted_[at];
  }
}

kernels::Target ElementwisePlan::target() const { return target_of(device_); }

kernels::Operand ElementwisePlan::input(int i) const {
  if (!operand(i).is_tensor()) return operand(i).number();
  const Tensor& tensor = *inputs_[static_cast<std::size_t>(i)];
  if (tensor.is_cpu() && !device_.is_cpu()) {
    kernels::Operand element = tensor.item();
    element.is_element = true;
    return element;
  }
  return broadcast_ref(tensor, shape_);
}

TensorRef ElementwisePlan::tensor_input(int i) {
  const auto at = static_cast<std::size_t>(i);
  if (inputs_[at]->is_cpu() && !device_.is_cpu()) {
    converted_[at] = inputs_[at]->to(device_);
    inputs_[at] = &converted_[at];
  }
  return broadcast_ref(*inputs_[at], shape_);
}

Tensor ElementwisePlan::finish() {
  if (out_ == nullptr) return output_;
  if (out_->dtype() != output_.dtype()) out_->copy_(output_);
  return *out_;
}

}  // namespace gantry::detail
