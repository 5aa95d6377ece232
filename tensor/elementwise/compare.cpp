#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/promote.hpp>
#include <gantry/tensor/reductions.hpp>

#include "kernels/convert.hpp"
#include "kernels/op_scope.hpp"
#include "tensor/check.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/named_ops.hpp"
#include "tensor/same_device.hpp"

namespace gantry {

namespace {

void check_same_dtype(std::string_view op, const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return;
  throw DTypeError(
      fmt::format("{}: {} did not match {}", op, torch_name(a.dtype()), torch_name(b.dtype())),
      a.device().str());
}

void check_tolerance(std::string_view op, std::string_view name, double value) {
  if (value >= 0) return;
  throw InvalidArgument(
      fmt::format("{}: {} must be greater than or equal to zero, but got {}", op, name, value));
}

void check_close_arguments(std::string_view op, const Tensor& a, const Tensor& b, double rtol,
                           double atol) {
  detail::common_device(op, {{"self", a}, {"other", b}}, detail::CpuScalars::allowed);
  check_same_dtype(op, a, b);
  check_tolerance(op, "rtol", rtol);
  check_tolerance(op, "atol", atol);
  static_cast<void>(detail::common_shape(op, {&a.sizes(), &b.sizes()}, a.device()));
}

// `tensor` in a dtype for differences: f32 for narrow floats, f64 for integers and bool.
Tensor widened(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::f16:
    case DType::bf16:
    case DType::f8e4m3:
    case DType::f8e5m2:
      return tensor.to(DType::f32);
    case DType::bool_:
    case DType::u8:
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
    case DType::u16:
    case DType::u32:
    case DType::u64:
      return tensor.to(DType::f64);
    case DType::f32:
    case DType::f64:
      return tensor;
  }
  __builtin_unreachable();
}

// `tensor` in a dtype that compares: elements are equal where those of `tensor` are.
Tensor comparable(const Tensor& tensor) {
  if (computes(tensor.dtype())) return tensor;
  return is_floating_point(tensor.dtype()) ? tensor.to(DType::f32)
                                           : tensor.view(kernels::signed_twin(tensor.dtype()));
}

void check_masked_fill(std::string_view op, const Tensor& self, const Tensor& mask,
                       const Operand& value) {
  detail::common_device(op, {{"self", self}, {"mask", mask}});
  detail::check_defined(op, "value", value);
  if (mask.dtype() != DType::bool_) {
    throw DTypeError(
        fmt::format("{}: masked_fill_ only supports boolean masks, but got mask with dtype {}", op,
                    torch_name(mask.dtype())),
        self.device().str());
  }
  if (!value.is_tensor()) {
    detail::check_fits(op, value.number(), self.dtype());
    return;
  }
  if (value.tensor().dim() != 0) {
    throw ShapeError(
        fmt::format(
            "{}: masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {} "
            "dimension(s).",
            op, value.tensor().dim()),
        self.device().str());
  }
  detail::common_device(op, {{"self", self, detail::Role::in_place}, {"value", value.tensor()}},
                        detail::CpuScalars::allowed);
  // Reading a value on a device would block the host, so that value is converted without a check.
  if (value.tensor().is_cpu()) detail::check_fits(op, value.tensor().item(), self.dtype());
}

}  // namespace

Tensor isclose(const Tensor& given_a, const Tensor& given_b, double rtol, double atol,
               bool equal_nan) {
  const kernels::OpScope scope("isclose");
  check_close_arguments("isclose", given_a, given_b, rtol, atol);
  const Tensor a = comparable(given_a);
  const Tensor b = comparable(given_b);
  Tensor close = eq(a, b);
  if (equal_nan && is_floating_point(a.dtype())) {
    close = logical_or(close, logical_and(isnan(a), isnan(b)));
  }
  if (rtol == 0 && atol == 0) return close;
  const Tensor left = widened(given_a);
  const Tensor right = widened(given_b);
  const Tensor difference = abs(sub(left, right));
  const Tensor allowed = add(mul(abs(right), rtol), atol);
  return logical_or(close, logical_and(isfinite(difference), le(difference, allowed)));
}

bool Tensor::equal(const Tensor& other) const {
  const kernels::OpScope scope("equal");
  detail::common_device("equal", {{"self", *this}, {"other", other}});
  check_same_dtype("equal", *this, other);
  if (sizes() != other.sizes()) return false;
  return numel() == 0 || comparable(*this).eq(comparable(other)).all().item<bool>();
}

bool Tensor::allclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  const kernels::OpScope scope("allclose");
  check_close_arguments("allclose", *this, other, rtol, atol);
  return isclose(other, rtol, atol, equal_nan).all().item<bool>();
}

Tensor& Tensor::masked_fill_(const Tensor& mask, const Operand& value) const {
  constexpr std::string_view kOp = "masked_fill_";
  check_masked_fill(kOp, *this, mask, value);
  detail::where_as(kOp, &handle(), mask, value, *this, dtype());
  return handle();
}

Tensor Tensor::masked_fill(const Tensor& mask, const Operand& value) const {
  constexpr std::string_view kOp = "masked_fill";
  check_masked_fill(kOp, *this, mask, value);
  if (mask.device() == device() || is_cpu()) {
    return detail::where_as(kOp, nullptr, mask, value, *this, dtype());
  }
  // A mask on a peer device does not decide where the result is.
  Tensor result = new_empty(detail::common_shape(kOp, {&sizes(), &mask.sizes()}, device()));
  return detail::where_as(kOp, &result, mask, value, *this, dtype());
}

}  // namespace gantry
