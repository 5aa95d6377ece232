#pragma once

#include <initializer_list>
#include <string_view>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// Where an operation's kernel writes: new memory, or the caller's output.
//
// The kernel writes dense row-major elements of one dtype. If the output has that form and shares
// no memory with the inputs, it is written directly. Otherwise finish() copies to it.
class Destination {
 public:
  // `out` may be null. Throws, before anything is allocated: InvalidArgument for an undefined
  // output or one that has several elements in one place, DeviceMismatchError, DTypeError "sum:
  // result type Float can't be cast to the desired output type Long", ShapeError "sum: expected an
  // output of shape [2], but got [3]". The result is on the device of the first input. Other inputs
  // may be null or undefined.
  Destination(std::string_view op, Tensor* out, const Shape& sizes, DType dtype,
              std::initializer_list<const Tensor*> inputs)
      : Destination(op, out, sizes, dtype, **inputs.begin(), inputs) {}
  // The same with the input that is on the result's device.
  Destination(std::string_view op, Tensor* out, const Shape& sizes, DType dtype,
              const Tensor& local, std::initializer_list<const Tensor*> inputs);

  // The memory for the kernel.
  const Tensor& tensor() const { return tensor_; }
  // The result: the output, or tensor().
  Tensor finish();

 private:
  Tensor* out_;
  Tensor tensor_;
};

// The checks of a Destination.
void check_output(std::string_view op, const Tensor& out, const Shape& sizes, DType dtype,
                  const Tensor& input);

}  // namespace gantry::detail
