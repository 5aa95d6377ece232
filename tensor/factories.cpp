#include <gantry/tensor/factories.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include <gantry/core/error.hpp>
#include <gantry/core/promotion.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/tensor/elementwise.hpp>

#include "kernels/layout/copy.hpp"
#include "kernels/op_scope.hpp"
#include "tensor/check.hpp"
#include "tensor/impl/stride_algebra.hpp"
#include "tensor/impl/tensor_impl.hpp"
#include "tensor/named_ops.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

Tensor make(std::string_view op, const Shape& sizes, const Dims& strides, DType dtype,
            const TensorOptions& options) {
  detail::check_sizes(op, sizes);
  const std::int64_t extent = detail::checked_extent(op, sizes, strides, dtype);
  const Device device = options.device.value_or(Device::cpu()).resolved();
  detail::check_pinned(op, device, options.pinned);
  const std::size_t bytes = static_cast<std::size_t>(extent) * element_size(dtype);
  return Tensor::from_storage(Storage::allocate(bytes, device, options.pinned), sizes, strides, 0,
                              dtype);
}

Tensor make(std::string_view op, const Shape& sizes, DType dtype, const TensorOptions& options) {
  detail::check_sizes(op, sizes);
  const std::int64_t numel = detail::checked_numel(op, sizes);
  const auto step = static_cast<std::int64_t>(element_size(dtype));
  if (numel > INT64_MAX / step) {  // throws
    static_cast<void>(detail::checked_extent(op, sizes, detail::contiguous_strides(sizes), dtype));
  }
  const Device device = options.device.value_or(Device::cpu()).resolved();
  detail::check_pinned(op, device, options.pinned);
  const auto bytes = static_cast<std::size_t>(numel * step);
  return make_contiguous(Storage::allocate(bytes, device, options.pinned), sizes, numel, dtype);
}

Tensor make_filled(std::string_view op, const Shape& sizes, const Scalar& value, DType dtype,
                   const TensorOptions& options) {
  const kernels::OpScope scope(op);
  detail::check_fits(op, value, dtype);
  Tensor result = make(op, sizes, dtype, options);
  if (result.numel() > 0) kernels::fill(detail::target_of(result), result.ref(), value);
  return result;
}

DType integer_or_real(const TensorOptions& options, bool integers) {
  return options.dtype.value_or(integers ? DType::i64 : DType::f32);
}

bool is_integer(const Scalar& number) { return number.category() != DTypeCategory::floating; }

}  // namespace

Tensor detail::empty_as(std::string_view op, const Shape& sizes, const TensorOptions& options) {
  return make(op, sizes, options.dtype.value_or(DType::f32), options);
}

Tensor empty(const Shape& sizes, const TensorOptions& options) {
  return detail::empty_as("empty", sizes, options);
}

Tensor empty_strided(const Shape& sizes, const Dims& strides, const TensorOptions& options) {
  const DType dtype = options.dtype.value_or(DType::f32);
  detail::check_layout("empty_strided", sizes, strides, 0, dtype,
                       static_cast<std::size_t>(INT64_MAX));
  return make("empty_strided", sizes, strides, dtype, options);
}

Tensor zeros(const Shape& sizes, const TensorOptions& options) {
  return make_filled("zeros", sizes, 0, options.dtype.value_or(DType::f32), options);
}

Tensor ones(const Shape& sizes, const TensorOptions& options) {
  return make_filled("ones", sizes, 1, options.dtype.value_or(DType::f32), options);
}

Tensor full(const Shape& sizes, const Scalar& value, const TensorOptions& options) {
  return make_filled("full", sizes, value, options.dtype.value_or(value.default_dtype()), options);
}

TensorOptions detail::like_options(const char* op, const Tensor& other,
                                   const TensorOptions& options) {
  check_defined(op, "other", other);
  return {.dtype = options.dtype.value_or(other.dtype()),
          .device = options.device.value_or(other.device()),
          .pinned = options.pinned};
}

Tensor empty_like(const Tensor& other, const TensorOptions& options) {
  const TensorOptions merged = detail::like_options("empty_like", other, options);
  return make("empty_like", other.sizes(), *merged.dtype, merged);
}

Tensor zeros_like(const Tensor& other, const TensorOptions& options) {
  const TensorOptions merged = detail::like_options("zeros_like", other, options);
  return make_filled("zeros_like", other.sizes(), 0, *merged.dtype, merged);
}

Tensor ones_like(const Tensor& other, const TensorOptions& options) {
  const TensorOptions merged = detail::like_options("ones_like", other, options);
  return make_filled("ones_like", other.sizes(), 1, *merged.dtype, merged);
}

Tensor full_like(const Tensor& other, const Scalar& value, const TensorOptions& options) {
  const TensorOptions merged = detail::like_options("full_like", other, options);
  return make_filled("full_like", other.sizes(), value, *merged.dtype, merged);
}

Tensor Tensor::new_empty(const Shape& sizes, const TensorOptions& options) const {
  const TensorOptions merged = detail::like_options("new_empty", *this, options);
  return make("new_empty", sizes, *merged.dtype, merged);
}

Tensor Tensor::new_zeros(const Shape& sizes, const TensorOptions& options) const {
  const TensorOptions merged = detail::like_options("new_zeros", *this, options);
  return make_filled("new_zeros", sizes, 0, *merged.dtype, merged);
}

Tensor Tensor::new_ones(const Shape& sizes, const TensorOptions& options) const {
  const TensorOptions merged = detail::like_options("new_ones", *this, options);
  return make_filled("new_ones", sizes, 1, *merged.dtype, merged);
}

Tensor Tensor::new_full(const Shape& sizes, const Scalar& value,
                        const TensorOptions& options) const {
  const TensorOptions merged = detail::like_options("new_full", *this, options);
  return make_filled("new_full", sizes, value, *merged.dtype, merged);
}

Tensor scalar_tensor(const Scalar& value, const TensorOptions& options) {
  return make_filled("scalar_tensor", {}, value, options.dtype.value_or(value.default_dtype()),
                     options);
}

namespace {

// (last - first) / by, also where the difference is beyond the range of f64.
double quotient(double first, double last, double by) {
  const double difference = last - first;
  return std::isfinite(difference) ? difference / by : 2 * ((last / 2 - first / 2) / by);
}

}  // namespace

Tensor arange(const Scalar& end, const TensorOptions& options) {
  return arange(is_integer(end) ? Scalar(0) : Scalar(0.0), end, 1, options);
}

Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step,
              const TensorOptions& options) {
  const bool integers = is_integer(start) && is_integer(end) && is_integer(step);
  const double first = start.to<double>();
  const double last = end.to<double>();
  const double by = step.to<double>();
  if (by == 0 || std::isnan(by)) {
    throw InvalidArgument(fmt::format("arange: step must be nonzero, but got {}", by));
  }
  if (!std::isfinite(first) || !std::isfinite(last)) {
    throw InvalidArgument(fmt::format("arange: unsupported range: {} -> {}", first, last));
  }
  if (by > 0 ? first > last : first < last) {
    throw InvalidArgument(fmt::format(
        "arange: upper bound and lower bound inconsistent with step sign, but got {} -> {} by {}",
        first, last, by));
  }
  const DType dtype = integer_or_real(options, integers);
  if (!integers && !is_floating_point(dtype)) {
    // As in PyTorch, the arguments are truncated first, so that the elements are evenly spaced.
    return arange(start.to<std::int64_t>(), end.to<std::int64_t>(), step.to<std::int64_t>(),
                  options);
  }
  std::int64_t count = 0;
  if (integers) {
    const auto wide = [](const Scalar& number) {
      return static_cast<__int128>(number.to<std::int64_t>());
    };
    const __int128 stride = wide(step);
    const __int128 distance = wide(end) - wide(start);
    const __int128 rounded = (distance + stride - (stride > 0 ? 1 : -1)) / stride;
    if (rounded > INT64_MAX) throw ShapeError("arange: expected less than 2^63 elements");
    count = static_cast<std::int64_t>(rounded);
  } else {
    const double steps = std::ceil(quotient(first, last, by));
    if (!(steps < 9.2e18)) {
      throw ShapeError(fmt::format("arange: expected less than 2^63 elements, but got {}", steps));
    }
    count = static_cast<std::int64_t>(steps);
  }
  const kernels::OpScope scope("arange");
  detail::check_computes("arange", dtype);
  Tensor result = make("arange", {count}, dtype, options);
  if (count > 0) kernels::arange(detail::target_of(result), result.ref(), start, step);
  return result;
}

namespace {

// True if divided_ramp() can make the elements: the ends are integers that `dtype` holds, and their
// products with `steps` fit i64.
bool are_divisible(const Scalar& start, const Scalar& end, std::int64_t steps, DType dtype) {
  if (!is_integer(start) || !is_integer(end) || dtype == DType::bool_) return false;
  const auto holds = [&](const Scalar& number) {
    const auto value = number.to<std::int64_t>();
    const __int128 product = static_cast<__int128>(value) * std::max<std::int64_t>(steps, 2);
    return product >= INT64_MIN && product <= INT64_MAX &&
           dispatch(dtype, [&]<class T>(TypeTag<T>) {
             return number.fits<T>() && (std::is_signed_v<T> || value >= 0);
           });
  };
  return holds(start) && holds(end);
}

// linspace in exact integer arithmetic. An f64 slightly below an integer would be truncated to the
// integer before it.
Tensor divided_ramp(std::int64_t start, std::int64_t end, std::int64_t steps, Device device) {
  const std::int64_t parts = std::max<std::int64_t>(steps - 1, 1);
  Tensor products = make("linspace", {steps}, DType::i64, {.device = device});
  kernels::arange(detail::target_of(products), products.ref(), start * parts, end - start);
  return products.div_(parts, RoundingMode::trunc);
}

}  // namespace

Tensor linspace(const Scalar& start, const Scalar& end, std::int64_t steps,
                const TensorOptions& options) {
  const kernels::OpScope scope("linspace");
  if (steps < 0) {
    throw InvalidArgument(
        fmt::format("linspace: number of steps must be non-negative, but got {}", steps));
  }
  const DType dtype = options.dtype.value_or(DType::f32);
  detail::check_computes("linspace", dtype);
  Tensor result = make("linspace", {steps}, dtype, options);
  if (steps == 0) return result;
  if (!is_floating_point(dtype)) {
    const TensorOptions wide{.dtype = DType::f64, .device = result.device()};
    return result.copy_(
        are_divisible(start, end, steps, dtype)
            ? divided_ramp(start.to<std::int64_t>(), end.to<std::int64_t>(), steps, result.device())
            : linspace(start, end, steps, wide));
  }
  const auto target = detail::target_of(result);
  const double first = start.to<double>();
  const double last = end.to<double>();
  double by = steps == 1 ? 0 : quotient(first, last, static_cast<double>(steps - 1));
  // With two elements, both are ends, and the distance between them may be beyond the range.
  if (!std::isfinite(by)) by = 0;
  // Each half is computed from its own end, so that both ends are exact.
  const std::int64_t half = (steps + 1) / 2;
  kernels::arange(target, result.narrow(0, 0, half).ref(), first, by);
  if (steps > half) {
    kernels::arange(target, result.narrow(0, half, steps - half).ref(), last, by,
                    half - (steps - 1));
  }
  if (steps > 1 && steps % 2 == 1) {  // the middle element is in neither half
    kernels::fill(target, result.select(0, steps / 2).ref(), first / 2 + last / 2);
  }
  return result;
}

Tensor logspace(const Scalar& start, const Scalar& end, std::int64_t steps, double base,
                const TensorOptions& options) {
  const kernels::OpScope scope("logspace");
  if (steps < 0) {
    throw InvalidArgument(
        fmt::format("logspace: number of steps must be non-negative, but got {}", steps));
  }
  Tensor result = make("logspace", {steps}, options.dtype.value_or(DType::f32), options);
  const TensorOptions exponents{.dtype = DType::f64, .device = result.device()};
  return result.copy_(pow(base, linspace(start, end, steps, exponents)));
}

Tensor eye(std::int64_t n, const TensorOptions& options) { return eye(n, n, options); }

Tensor eye(std::int64_t n, std::int64_t m, const TensorOptions& options) {
  const kernels::OpScope scope("eye");
  Tensor result = make_filled("eye", {n, m}, 0, options.dtype.value_or(DType::f32), options);
  if (result.numel() > 0) {
    kernels::fill(detail::target_of(result), result.diagonal().ref(), 1);
  }
  return result;
}

namespace {

Tensor triangle(std::string_view op, const Tensor& self, bool lower, std::int64_t diagonal) {
  const kernels::OpScope scope(op);
  detail::check_defined(op, "self", self);
  if (self.dim() < 2) {
    throw ShapeError(fmt::format("{}: input tensor must have at least 2 dimensions, but got {}", op,
                                 self.sizes().str()),
                     self.device().str());
  }
  Tensor result = empty_like(self);
  if (self.numel() > 0) {
    kernels::triangle(detail::target_of(self), result.ref(), self.ref(), lower, diagonal);
  }
  return result;
}

}  // namespace

Tensor tril(const Tensor& self, std::int64_t diagonal) {
  return triangle("tril", self, true, diagonal);
}
Tensor triu(const Tensor& self, std::int64_t diagonal) {
  return triangle("triu", self, false, diagonal);
}
Tensor Tensor::tril(std::int64_t diagonal) const { return gantry::tril(*this, diagonal); }
Tensor Tensor::triu(std::int64_t diagonal) const { return gantry::triu(*this, diagonal); }

Tensor from_blob(void* data, const Shape& sizes, const TensorOptions& options) {
  return detail::dense_from_blob(data, sizes, {}, options);
}

Tensor from_blob(void* data, const Shape& sizes, const Dims& strides,
                 std::function<void(void*)> deleter, const TensorOptions& options) {
  const DType dtype = options.dtype.value_or(DType::f32);
  detail::check_layout("from_blob", sizes, strides, 0, dtype, static_cast<std::size_t>(INT64_MAX));
  const std::int64_t extent = detail::checked_extent("from_blob", sizes, strides, dtype);
  const Device device = options.device.value_or(Device::cpu()).resolved();
  if (data == nullptr && extent > 0) {
    throw InvalidArgument(
        fmt::format("from_blob: expected memory for {} elements, but got a null pointer", extent));
  }
  if (device.is_cuda() && extent > 0) {
    // A kernel that accesses a wrong address would corrupt the CUDA context.
    const PointerInfo info = driver().pointer_info(data);
    if (info.kind != PointerKind::device || info.device != device.index) {
      throw InvalidArgument(fmt::format(
          "from_blob: expected memory of {}, but got {}", device.str(),
          info.kind == PointerKind::device ? "memory of " + Device::cuda(info.device).str()
                                           : std::string("a host address")));
    }
  }
  const std::size_t bytes = static_cast<std::size_t>(extent) * element_size(dtype);
  return Tensor::from_storage(Storage::foreign(data, bytes, device, std::move(deleter)), sizes,
                              strides, 0, dtype);
}

namespace detail {

Tensor dense_from_blob(void* data, const Shape& sizes, std::function<void(void*)> deleter,
                       const TensorOptions& options) {
  check_sizes("from_blob", sizes);
  static_cast<void>(checked_numel("from_blob", sizes));
  return from_blob(data, sizes, contiguous_strides(sizes), std::move(deleter), options);
}

Tensor tensor_from_host(const void* data, DType source, const Shape& sizes,
                        const TensorOptions& options) {
  const kernels::OpScope scope("tensor");
  const DType kept = source == DType::i32 ? DType::i64 : source == DType::f64 ? DType::f32 : source;
  Tensor result = make("tensor", sizes, options.dtype.value_or(kept), options);
  if (result.numel() > 0) {
    result.copy_(from_blob(const_cast<void*>(data), sizes, {.dtype = source}));
  }
  return result;
}

void check_row(int dim, std::size_t row, std::size_t size, std::size_t expected) {
  if (size == expected) return;
  throw ShapeError(
      fmt::format("tensor: expected sequence of length {} at dim {} (got {}) in row {}", expected,
                  dim, size, row));
}

NestedList::NestedList(std::initializer_list<NestedList> entries) {
  if (entries.size() > 0) sizes_ = entries.begin()->sizes_;
  std::size_t row = 0;
  for (const NestedList& entry : entries) {
    if (entry.sizes_ != sizes_) {
      throw ShapeError(fmt::format("tensor: expected an entry of shape {} in row {}, but got {}",
                                   sizes_.str(), row, entry.sizes_.str()));
    }
    if (entry.dtype_) dtype_ = dtype_ ? promote_types(*dtype_, *entry.dtype_) : entry.dtype_;
    numbers_.insert(numbers_.end(), entry.numbers_.begin(), entry.numbers_.end());
    ++row;
  }
  sizes_.insert(0, static_cast<std::int64_t>(entries.size()));
}

Tensor NestedList::tensor(const TensorOptions& options) const {
  return dispatch_any(dtype_.value_or(DType::f32), [&]<class T>(TypeTag<T>) {
    const auto elements = std::make_unique<T[]>(numbers_.size());
    std::transform(numbers_.begin(), numbers_.end(), elements.get(),
                   [](const Scalar& number) { return number.to<T>(); });
    return tensor_from_host(elements.get(), dtype_of<T>, sizes_, options);
  });
}

}  // namespace detail

}  // namespace gantry
