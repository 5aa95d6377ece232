#pragma once

#include <optional>
#include <string_view>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// Throws InvalidArgument "add: expected a defined tensor for argument 'other', but got an undefined
// tensor".
void check_defined(std::string_view op, std::string_view argument, const Tensor& tensor);
// The same for an operand. Numbers pass.
void check_defined(std::string_view op, std::string_view argument, const Operand& operand);
// Throws ShapeError for a negative size.
void check_sizes(std::string_view op, const Shape& sizes);
// Throws InvalidArgument if `pinned` is set and `device` is not the CPU.
void check_pinned(std::string_view op, Device device, bool pinned);

// Throws DTypeError "add does not compute with f8e4m3; cast it with to()".
void check_computes(std::string_view op, DType dtype);
void check_computes(std::string_view op, const Tensor& tensor);
// Throws DTypeError "softmax: expected a floating type, but got Long". `where` is the device of the
// operand or of the result.
void check_floating(std::string_view op, DType dtype, const std::optional<Device>& where);

// Throws InvalidArgument "fill_: value cannot be converted to type u8 without overflow, got 300".
void check_fits(std::string_view op, const Scalar& value, DType dtype);
// The same for a number that is compared with elements of `dtype`, or divides them: unsigned dtypes
// take no negative number, and f16 and bf16 make a large one infinite. Every tensor passes.
void check_operand_fits(std::string_view op, const Operand& operand, DType dtype);
// True if an element of `dtype` can be `value`: no negative number is one of an unsigned dtype.
[[nodiscard]] bool is_representable(const Scalar& value, DType dtype);
// check_fits for a number that multiplies elements of `dtype`, which f16 and bf16 do in f32.
void check_factor_fits(std::string_view op, const Scalar& factor, DType dtype);

// Non-negative `dim` for a tensor of `ndim` dims (0 counts as 1) on `device`. Throws IndexError
// "sum: Dimension out of range (expected to be in range of [-2, 1], but got 2)".
[[nodiscard]] int wrap_dim(std::string_view op, std::int64_t dim, int ndim, Device device);
[[nodiscard]] inline int wrap_dim(std::string_view op, std::int64_t dim, const Tensor& self) {
  return wrap_dim(op, dim, self.dim(), self.device());
}
// Non-negative dims of `self`; all dims for Axes{}. Throws as wrap_dim does, and InvalidArgument
// "dim 0 appears multiple times in the list of dims".
[[nodiscard]] Dims wrap_dims(std::string_view op, const Axes& dims, const Tensor& self);

}  // namespace gantry::detail
