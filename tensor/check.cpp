#include "tensor/check.hpp"

#include <fmt/format.h>

#include <locale>
#include <sstream>
#include <type_traits>

#include <gantry/core/error.hpp>

#include "kernels/dispatch.hpp"

namespace gantry::detail {

void check_defined(std::string_view op, std::string_view argument, const Tensor& tensor) {
  if (tensor.defined()) return;
  throw InvalidArgument(
      fmt::format("{}: expected a defined tensor for argument '{}', but got an undefined tensor",
                  op, argument));
}

void check_defined(std::string_view op, std::string_view argument, const Operand& operand) {
  if (operand.is_tensor()) check_defined(op, argument, operand.tensor());
}

void check_sizes(std::string_view op, const Shape& sizes) {
  for (const std::int64_t size : sizes) {
    if (size < 0) {
      throw ShapeError(fmt::format("{}: Trying to create tensor with negative dimension {}: {}", op,
                                   size, sizes.str()));
    }
  }
}

void check_pinned(std::string_view op, Device device, bool pinned) {
  if (pinned && !device.is_cpu()) {
    throw InvalidArgument(
        fmt::format("{}: expected a CPU tensor for pinned memory, but got device {}", op,
                    device.str()),
        device.str());
  }
}

void check_computes(std::string_view op, DType dtype) {
  if (!computes(dtype)) kernels::throw_does_not_compute(op, dtype);
}

void check_computes(std::string_view op, const Tensor& tensor) {
  if (tensor.defined()) check_computes(op, tensor.dtype());
}

void check_floating(std::string_view op, DType dtype, const std::optional<Device>& where) {
  check_computes(op, dtype);
  if (is_floating_point(dtype)) return;
  throw DTypeError(fmt::format("{}: expected a floating type, but got {}", op, torch_name(dtype)),
                   where ? where->str() : std::string());
}

namespace {

[[noreturn]] void throw_overflow(std::string_view op, const Scalar& value, DType dtype) {
  std::ostringstream number;
  number.imbue(std::locale::classic());  // not the program's locale
  number << value;
  throw InvalidArgument(
      fmt::format("{}: value cannot be converted to type {} without overflow, got {}", op,
                  name(dtype), number.str()));
}

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

bool is_unsigned(DType dtype) {
  return dispatch_any(
      dtype, []<class T>(TypeTag<T>) { return std::is_unsigned_v<T> && !std::is_same_v<T, bool>; });
}

}  // namespace

void check_fits(std::string_view op, const Scalar& value, DType dtype) {
  const bool fits = dispatch_any(dtype, [&]<class T>(TypeTag<T>) { return value.fits<T>(); });
  if (!fits) throw_overflow(op, value, dtype);
}

void check_operand_fits(std::string_view op, const Operand& operand, DType dtype) {
  if (operand.is_tensor() || is_half(dtype)) return;
  const Scalar& number = operand.number();
  check_fits(op, number, dtype);
  if (is_unsigned(dtype) && number.to<std::int64_t>() < 0) throw_overflow(op, number, dtype);
}

bool is_representable(const Scalar& value, DType dtype) {
  const bool fits = dispatch_any(dtype, [&]<class T>(TypeTag<T>) { return value.fits<T>(); });
  return fits && !(is_unsigned(dtype) && value.to<double>() < 0);
}

void check_factor_fits(std::string_view op, const Scalar& factor, DType dtype) {
  check_fits(op, factor, is_half(dtype) ? DType::f32 : dtype);
}

int wrap_dim(std::string_view op, std::int64_t dim, int ndim, Device device) {
  const std::int64_t count = ndim == 0 ? 1 : ndim;
  if (dim < -count || dim >= count) {
    throw IndexError(
        fmt::format("{}: Dimension out of range (expected to be in range of [{}, {}], but got {})",
                    op, -count, count - 1, dim),
        device.str());
  }
  return static_cast<int>(dim < 0 ? dim + count : dim);
}

Dims wrap_dims(std::string_view op, const Axes& axes, const Tensor& self) {
  Dims result;
  if (axes.all()) {
    for (int d = 0; d < self.dim(); ++d) result.push_back(d);
    return result;
  }
  unsigned seen = 0;
  for (const std::int64_t given : axes.dims()) {
    const int dim = wrap_dim(op, given, self);
    if ((seen & (1u << dim)) != 0) {
      throw InvalidArgument(
          fmt::format("{}: dim {} appears multiple times in the list of dims", op, dim),
          self.device().str());
    }
    seen |= 1u << dim;
    result.push_back(dim);
  }
  return result;
}

}  // namespace gantry::detail
