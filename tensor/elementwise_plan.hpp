#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include <gantry/tensor/tensor.hpp>

#include "kernels/elementwise.hpp"
#include "kernels/target.hpp"

namespace gantry::detail {

// What every elementwise operation does around its kernel: checks first, then allocation,
// conversion of inputs to the compute type, the kernel, and conversion to `out`.
//
// Use: construct (checks operands), set_types (checks the rest, allocates), run the kernel on
// target() with output() and input(i), then finish.
class ElementwisePlan {
 public:
  // An operand and what the operation calls it.
  struct Argument {
    std::string_view name;
    const Operand& operand;
    bool is_condition = false;  // keeps its own type
  };

  // `out` is where the caller wants the result, or nullptr for new memory. Throws InvalidArgument
  // for undefined tensors and if no operand is a tensor, DeviceMismatchError, ShapeError.
  ElementwisePlan(std::string_view op, Tensor* out, std::initializer_list<Argument> arguments);

  // The operands' promoted type.
  DType promoted() const { return promoted_; }
  // Where it runs.
  Device device() const { return device_; }
  // The common shape.
  const Shape& shape() const { return shape_; }
  const Operand& operand(int i) const { return *operands_[static_cast<std::size_t>(i)]; }

  // Inputs are converted to `compute`; the kernel's output has type `result`. Throws DTypeError,
  // ShapeError, InvalidArgument (overlap) if `out` cannot take the result.
  void set_types(DType compute, DType result);

  kernels::Target target() const;
  TensorRef output() const { return output_.ref(); }
  // Input i, broadcast: a tensor or a number.
  kernels::Operand input(int i) const;
  // Input i, which must be a tensor; a 0-dim CPU tensor is moved to the device.
  TensorRef tensor_input(int i);

  // The result; converts it to `out` if that has another type.
  Tensor finish();

 private:
  static constexpr int kMaxOperands = 3;

  void check_out(DType result) const;

  std::string_view op_;
  Tensor* out_;
  int count_ = 0;
  std::array<const Operand*, kMaxOperands> operands_{};
  std::array<bool, kMaxOperands> is_condition_{};
  std::array<Tensor, kMaxOperands> converted_;
  Device device_;
  Shape shape_;
  DType promoted_ = DType::f32;
  Tensor output_;
};

}  // namespace gantry::detail
