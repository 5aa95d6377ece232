#pragma once

#include <gantry/core/dim.hpp>
#include <gantry/core/export.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/tensor.hpp>

/// PyTorch's alternative names of operations. Shapes, dtypes, devices and errors are those of the
/// operation named.
/// @since 0.3
namespace gantry {

/// Same as abs.
[[nodiscard]] inline Tensor absolute(const Tensor& self) { return abs(self); }
inline Tensor& absolute_out(Tensor& out, const Tensor& self) { return abs_out(out, self); }
/// Same as sign.
[[nodiscard]] inline Tensor sgn(const Tensor& self) { return sign(self); }
inline Tensor& sgn_out(Tensor& out, const Tensor& self) { return sign_out(out, self); }
/// Same as trunc.
[[nodiscard]] inline Tensor fix(const Tensor& self) { return trunc(self); }
inline Tensor& fix_out(Tensor& out, const Tensor& self) { return trunc_out(out, self); }
/// The tensor itself. Throws: DTypeError for bool.
[[nodiscard]] GANTRY_API Tensor positive(const Tensor& self);
/// Same as div without a rounding mode.
[[nodiscard]] inline Tensor true_divide(const Operand& a, const Operand& b) { return div(a, b); }
inline Tensor& true_divide_out(Tensor& out, const Operand& a, const Operand& b) {
  return div_out(out, a, b);
}
/// other - alpha * self: sub with exchanged operands.
[[nodiscard]] inline Tensor rsub(const Tensor& self, const Operand& other,
                                 const Scalar& alpha = 1) {
  return sub(other, self, alpha);
}
inline Tensor& rsub_out(Tensor& out, const Tensor& self, const Operand& other,
                        const Scalar& alpha = 1) {
  return sub_out(out, other, self, alpha);
}
/// clamp with a lower bound only.
[[nodiscard]] inline Tensor clamp_min(const Tensor& self, const Operand& low) {
  return clamp(self, low);
}
inline Tensor& clamp_min_out(Tensor& out, const Tensor& self, const Operand& low) {
  return clamp_out(out, self, low);
}
/// clamp with an upper bound only.
[[nodiscard]] inline Tensor clamp_max(const Tensor& self, const Operand& high) {
  return clamp(self, std::nullopt, high);
}
inline Tensor& clamp_max_out(Tensor& out, const Tensor& self, const Operand& high) {
  return clamp_out(out, self, std::nullopt, high);
}

/// view with the shape of `other`.
[[nodiscard]] inline Tensor view_as(const Tensor& self, const Tensor& other) {
  return self.view(other.sizes());
}
/// reshape with the shape of `other`.
[[nodiscard]] inline Tensor reshape_as(const Tensor& self, const Tensor& other) {
  return self.reshape(other.sizes());
}
/// Same as Tensor::transpose.
[[nodiscard]] inline Tensor swapaxes(const Tensor& self, Dim dim0, Dim dim1) {
  return self.transpose(dim0, dim1);
}
/// Same as Tensor::transpose.
[[nodiscard]] inline Tensor swapdims(const Tensor& self, Dim dim0, Dim dim1) {
  return self.transpose(dim0, dim1);
}
/// reshape to one dim: a view if possible, else a copy.
[[nodiscard]] inline Tensor ravel(const Tensor& self) { return self.reshape(Shape{-1}); }
/// True for f16, bf16, f32 and f64.
[[nodiscard]] inline bool is_floating_point(const Tensor& self) {
  return is_floating_point(self.dtype());
}

}  // namespace gantry
