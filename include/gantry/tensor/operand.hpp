#pragma once

#include <concepts>

#include <gantry/core/scalar.hpp>

namespace gantry {

class Tensor;

/// A function parameter that accepts a tensor or a number: `t.add(other)`, `t.add(2)`, `pow(2, t)`.
///
/// Borrows the tensor: use it for parameters only, never store it.
/// Example: `const Tensor y = ones({3}).add(2).mul(ones({3}));  // a number or a tensor`
/// @since 0.1
class Operand {
 public:
  /// A reference to a tensor, or a number.
  Operand(const Tensor& tensor) : tensor_(&tensor) {}
  Operand(const Scalar& number) : number_(number) {}
  Operand(bool number) : number_(number) {}
  template <class T>
  requires((std::integral<T> || std::floating_point<T>)&&!std::same_as<T, bool>) Operand(T number)
      : number_(number) {}
  Operand(float16 number) : number_(number) {}
  Operand(bfloat16 number) : number_(number) {}

  /// True for a tensor, false for a number.
  [[nodiscard]] bool is_tensor() const noexcept { return tensor_ != nullptr; }
  /// The tensor. Precondition: is_tensor().
  [[nodiscard]] const Tensor& tensor() const noexcept { return *tensor_; }
  /// The number. Precondition: !is_tensor().
  [[nodiscard]] const Scalar& number() const noexcept { return number_; }

 private:
  const Tensor* tensor_ = nullptr;
  Scalar number_;
};

}  // namespace gantry
