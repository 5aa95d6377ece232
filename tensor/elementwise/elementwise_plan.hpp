#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include <gantry/tensor/tensor.hpp>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/op_scope.hpp"
#include "kernels/target.hpp"

namespace gantry::detail {

// The steps of an elementwise operation around its kernel: checks, allocation, conversion of the
// inputs to the compute type, and conversion of the result to `out`.
//
// Use: construct (checks operands), set_types (checks the rest, allocates), run the kernel on
// target() with output() and input(i), then finish.
class ElementwisePlan {
 public:
  // An operand and its name in errors.
  struct Argument {
    std::string_view name;
    const Operand& operand;
    bool is_condition = false;  // keeps its own dtype
  };

  // Whether the kernel computes with elements or moves them.
  enum class Use { computes, moves };

  // `out` is the caller's output, or nullptr for new memory. Throws InvalidArgument for undefined
  // tensors or if no operand is a tensor, DeviceMismatchError, ShapeError, and DTypeError if the
  // promoted dtype does not compute but the kernel does.
  ElementwisePlan(std::string_view op, Tensor* out, std::initializer_list<Argument> arguments,
                  Use use = Use::computes);
  ElementwisePlan(const ElementwisePlan&) = delete;
  ElementwisePlan& operator=(const ElementwisePlan&) = delete;

  // The operands' promoted dtype.
  DType promoted() const { return promoted_; }
  // The device of the operation.
  Device device() const { return device_; }
  // The common broadcast shape.
  const Shape& shape() const { return shape_; }
  const Operand& operand(int i) const { return *operands_[static_cast<std::size_t>(i)]; }

  // Sets the dtype of the converted inputs and of the kernel's output. Throws DTypeError,
  // ShapeError or InvalidArgument (overlap) if `out` cannot hold the result.
  void set_types(DType compute, DType result);

  kernels::Target target() const;
  TensorRef output() const { return output_.ref(); }
  // Input i, broadcast: a tensor or a number.
  kernels::Operand input(int i) const;
  // Input i, which must be a tensor. A 0-dim CPU tensor is copied to the device.
  TensorRef tensor_input(int i);

  // The result, converted to `out` if `out` has another dtype.
  Tensor finish();

 private:
  static constexpr int kMaxOperands = 3;

  // Sets device, shape and dtype if all tensors, also `out`, agree in them and the numbers need no
  // wider dtype. Returns false, without an effect, if they do not or an argument is in error.
  bool adopt_common();
  // The same for all other arguments. Throws as the constructor does.
  void promote(std::initializer_list<Argument> arguments);
  void check_out(DType result) const;

  kernels::OpScope scope_;
  std::string_view op_;
  Tensor* out_;
  int count_ = 0;
  std::array<const Operand*, kMaxOperands> operands_{};
  std::array<bool, kMaxOperands> is_condition_{};
  // Input i: the operand's tensor, or converted_[i].
  std::array<const Tensor*, kMaxOperands> inputs_{};
  std::array<Tensor, kMaxOperands> converted_;
  Device device_;
  Shape shape_;
  DType promoted_ = DType::f32;
  Tensor output_;
};

}  // namespace gantry::detail
