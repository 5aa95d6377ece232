#pragma once

#include <gantry/core/scalar.hpp>
#include <gantry/kernels/tensor_ref.hpp>

namespace gantry::kernels {

// One input of an elementwise kernel: a tensor of the output's sizes (strides of 0 broadcast), or a
// number, converted to the compute type.
struct Operand {
  Operand(const TensorRef& tensor) : tensor(tensor) {}
  Operand(const Scalar& number) : number(number), is_number(true) {}

  TensorRef tensor;
  Scalar number;
  bool is_number = false;
  // True if the number is the element of a 0-dim tensor. The result then has the tensor's bits.
  bool is_element = false;
};

}  // namespace gantry::kernels
