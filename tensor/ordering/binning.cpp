#include <gantry/tensor/binning.hpp>

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <tuple>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/promote.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "kernels/op_scope.hpp"
#include "kernels/ordering/binning.hpp"
#include "tensor/check.hpp"
#include "tensor/outputs.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

Shape without_last(const Shape& sizes) {
  Shape result = sizes;
  result.erase(sizes.size() - 1);
  return result;
}

// Checks the shapes of searchsorted, and that its results fit the dtype.
void check_search(std::string_view op, const Tensor& sequence, const Operand& values,
                  bool out_int32) {
  if (sequence.dim() == 0) {
    throw ShapeError(
        fmt::format("{}(): boundaries tensor should have positive dimension, but got 0 "
                    "dimension",
                    op),
        sequence.device().str());
  }
  const Shape& sizes = sequence.sizes();
  if (sequence.dim() > 1) {
    if (!values.is_tensor()) {
      throw ShapeError(fmt::format("{}(): input value can be a scalar only when boundaries tensor "
                                   "dimension is 1, but got boundaries of shape {}",
                                   op, sizes.str()),
                       sequence.device().str());
    }
    const Shape& looked_up = values.tensor().sizes();
    if (looked_up.size() != sizes.size() || without_last(looked_up) != without_last(sizes)) {
      throw ShapeError(
          fmt::format(
              "{}(): boundaries tensor should be 1 dimension or the first N-1 dimensions of "
              "boundaries tensor and input value tensor must match, but got boundaries of "
              "shape {} and values of shape {}",
              op, sizes.str(), looked_up.str()),
          sequence.device().str());
    }
  }
  if (out_int32 && sizes[sizes.size() - 1] > std::numeric_limits<std::int32_t>::max()) {
    throw InvalidArgument(
        fmt::format("{}: expected a sequence of at most {} elements for out_int32, but got {}", op,
                    std::numeric_limits<std::int32_t>::max(), sizes[sizes.size() - 1]),
        sequence.device().str());
  }
}

// True if values belong behind equal elements.
bool is_right(std::string_view op, bool right, std::optional<std::string_view> side) {
  if (!side) return right;
  if (*side != "left" && *side != "right") {
    throw InvalidArgument(
        fmt::format("{}: side can only be 'left' or 'right', but got '{}'", op, *side));
  }
  if (right && *side == "left") {
    throw InvalidArgument(fmt::format(
        "{}: side and right can't be set to opposites, but got side 'left' and right true", op));
  }
  return *side == "right";
}

void check_sorter(std::string_view op, const Tensor& sequence, const Tensor& sorter) {
  detail::common_device(op, {{"sorted_sequence", sequence}, {"sorter", sorter}});
  if (sorter.dtype() != DType::i64) {
    throw DTypeError(fmt::format("{}(): sorter must be a tensor of long dtype, but got {}", op,
                                 torch_name(sorter.dtype())),
                     sequence.device().str());
  }
  if (sorter.sizes() != sequence.sizes()) {
    throw ShapeError(
        fmt::format("{}(): boundary and sorter must have the same size, but got {} and "
                    "{}",
                    op, sequence.sizes().str(), sorter.sizes().str()),
        sequence.device().str());
  }
}

// Checks the arguments; returns whether values belong behind equal elements.
bool check_arguments(std::string_view op, const Tensor& sequence, const Operand& values,
                     bool out_int32, bool right, std::optional<std::string_view> side,
                     const std::optional<Tensor>& sorter) {
  if (values.is_tensor()) {
    detail::common_device(op, {{"sorted_sequence", sequence}, {"values", values.tensor()}});
  } else {
    detail::check_defined(op, "sorted_sequence", sequence);
  }
  detail::check_computes(op, sequence);
  if (values.is_tensor()) detail::check_computes(op, values.tensor());
  check_search(op, sequence, values, out_int32);
  if (sorter) check_sorter(op, sequence, *sorter);
  return is_right(op, right, side);
}

// The place of a number before or behind all elements of `dtype`, infinite ones excepted.
Tensor search_beyond(const Tensor& sequence, const Scalar& number, DType dtype, bool out_int32) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool is_behind = number.to<double>() > 0;
  const DType index = out_int32 ? DType::i32 : DType::i64;
  if (!is_floating_point(dtype)) {
    return full({}, is_behind ? sequence.numel() : 0,
                {.dtype = index, .device = sequence.device()});
  }
  return (is_behind ? sequence.lt(kInfinity) : sequence.eq(-kInfinity)).sum().to(index);
}

Tensor search(const Tensor& sequence, const Operand& values, bool out_int32, bool right,
              const std::optional<Tensor>& sorter) {
  const DType dtype = result_type(sequence, values);
  const Device device = sequence.device();
  if (!values.is_tensor() && !detail::is_representable(values.number(), dtype)) {
    return search_beyond(sequence, values.number(), dtype, out_int32);
  }
  const Tensor looked_up = values.is_tensor()
                               ? values.tensor().to(dtype).contiguous()
                               : full({}, values.number(), {.dtype = dtype, .device = device});
  const Tensor in_order = sorter ? sequence.gather(-1, *sorter) : sequence;
  const Tensor sorted = in_order.to(dtype).contiguous();
  const Tensor out =
      empty(looked_up.sizes(), {.dtype = out_int32 ? DType::i32 : DType::i64, .device = device});
  kernels::searchsorted(detail::target_of(sequence), out.ref(), sorted.ref(), looked_up.ref(),
                        right);
  return out;
}

void check_boundaries(const Tensor& boundaries) {
  detail::check_defined("bucketize", "boundaries", boundaries);
  if (boundaries.dim() != 1) {
    throw ShapeError(
        fmt::format("bucketize(): boundaries tensor must be 1 dimension, but got dim({})",
                    boundaries.dim()),
        boundaries.device().str());
  }
}

Tensor& search_into(std::string_view op, Tensor& out, const Tensor& sequence, const Operand& values,
                    bool out_int32, bool right, std::optional<std::string_view> side,
                    const std::optional<Tensor>& sorter) {
  const bool is_behind = check_arguments(op, sequence, values, out_int32, right, side, sorter);
  detail::common_device(op, {{"out", out, detail::Role::output}, {"sorted_sequence", sequence}});
  detail::check_output(op, "out", out, values.is_tensor() ? values.tensor().sizes() : Shape{},
                       out_int32 ? DType::i32 : DType::i64);
  return out.copy_(search(sequence, values, out_int32, is_behind, sorter));
}

// The smallest and the largest element of an integer tensor. The host waits for them.
std::pair<std::int64_t, std::int64_t> extent(const Tensor& self) {
  const auto both = stack({self.amin(), self.amax()}).to_vector<std::int64_t>();
  return {both[0], both[1]};
}

void check_bincount(const Tensor& self, const std::optional<Tensor>& weights,
                    std::int64_t minlength) {
  if (weights) {
    detail::common_device("bincount", {{"self", self}, {"weights", *weights}});
  } else {
    detail::check_defined("bincount", "self", self);
  }
  detail::check_computes("bincount", self);
  if (is_floating_point(self.dtype())) {
    throw DTypeError(fmt::format("bincount: expected a tensor of an integer type, but got {}",
                                 torch_name(self.dtype())),
                     self.device().str());
  }
  if (self.dim() != 1) {
    throw ShapeError(
        fmt::format("bincount only supports 1-d non-negative integral inputs, but got shape {}",
                    self.sizes().str()),
        self.device().str());
  }
  if (minlength < 0) {
    throw InvalidArgument(fmt::format("bincount: minlength should be >= 0, but got {}", minlength),
                          self.device().str());
  }
  if (weights && weights->sizes() != self.sizes()) {
    throw ShapeError(
        fmt::format("bincount: weights should be 1-d and have the same length as input, but got "
                    "shapes {} and {}",
                    weights->sizes().str(), self.sizes().str()),
        self.device().str());
  }
}

// The range of histc.
struct Range {
  Scalar low;
  Scalar high;
};

double as_double(const Scalar& value) {
  return value.category() == DTypeCategory::floating
             ? value.to<double>()
             : static_cast<double>(value.to<std::int64_t>());
}

// `value` as the kernel has it: in f64 for elements of f64, else in f32.
double as_computed(const Tensor& self, double value) {
  return self.dtype() == DType::f64 ? value : static_cast<double>(static_cast<float>(value));
}

// `value` - 1 or, with `up`, + 1; where that rounds to `value`, the next number. The largest and
// the smallest number stay.
double beside(const Tensor& self, double value, bool up) {
  const double moved = as_computed(self, up ? value + 1 : value - 1);
  if (moved != value) return moved;
  const double end = up ? HUGE_VAL : -HUGE_VAL;
  const double next = self.dtype() == DType::f64
                          ? std::nextafter(value, end)
                          : std::nextafter(static_cast<float>(value), static_cast<float>(end));
  return std::isfinite(next) ? next : value;
}

Range floating_range(const Tensor& self, double min, double max) {
  double low = as_computed(self, min);
  double high = as_computed(self, max);
  if (low == high && self.numel() > 0) {
    const auto both = stack({self.amin(), self.amax()}).to_vector<double>();
    low = both[0];
    high = both[1];
  }
  if (!std::isfinite(low) || !std::isfinite(high)) {
    throw InvalidArgument(fmt::format("histc: range of [{}, {}] is not finite", low, high),
                          self.device().str());
  }
  if (low > high) {
    throw InvalidArgument(
        fmt::format("histc: max must be larger than min, but got [{}, {}]", low, high),
        self.device().str());
  }
  if (low == high) return {beside(self, low, false), beside(self, high, true)};
  return {low, high};
}

// A limit of the range of integers.
std::int64_t whole_limit(const Tensor& self, std::string_view name, const Scalar& value) {
  if (value.category() != DTypeCategory::floating) return value.to<std::int64_t>();
  const double number = value.to<double>();
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (number != std::floor(number) || number < -kEnd || number >= kEnd) {
    throw InvalidArgument(
        fmt::format("histc: expected a whole number for argument '{}' with a tensor of {}, but got "
                    "{}",
                    name, torch_name(self.dtype()), number),
        self.device().str());
  }
  return static_cast<std::int64_t>(number);
}

Range whole_range(const Tensor& self, std::int64_t low, std::int64_t high) {
  if (low == high && self.numel() > 0) std::tie(low, high) = extent(self);
  if (low > high) {
    throw InvalidArgument(
        fmt::format("histc: max must be larger than min, but got [{}, {}]", low, high),
        self.device().str());
  }
  if (low < high) return {low, high};
  using Limits = std::numeric_limits<std::int64_t>;
  return {low == Limits::min() ? low : low - 1, high == Limits::max() ? high : high + 1};
}

Range checked_range(const Tensor& self, std::int64_t bins, const Scalar& min, const Scalar& max) {
  if (self.dtype() == DType::bool_) {
    throw DTypeError("histc: expected a tensor of numbers, but got Bool", self.device().str());
  }
  if (bins <= 0) {
    throw InvalidArgument(fmt::format("histc: bins must be > 0, but got {}", bins),
                          self.device().str());
  }
  if (is_floating_point(self.dtype())) {
    return floating_range(self, as_double(min), as_double(max));
  }
  return whole_range(self, whole_limit(self, "min", min), whole_limit(self, "max", max));
}

// The dtype of the counts.
DType histogram_dtype(const Tensor& self) {
  return is_floating_point(self.dtype()) ? self.dtype() : DType::i64;
}

Tensor run_histc(const Tensor& self, std::int64_t bins, const Range& range) {
  const Tensor counts = zeros({bins}, {.dtype = DType::i64, .device = self.device()});
  const Tensor in = self.contiguous();
  kernels::count_bins(detail::target_of(self), counts.ref(), in.ref(), range.low, range.high);
  return counts.to(histogram_dtype(self));
}

}  // namespace

Tensor searchsorted(const Tensor& sorted_sequence, const Operand& values, bool out_int32,
                    bool right, std::optional<std::string_view> side,
                    const std::optional<Tensor>& sorter) {
  const kernels::OpScope scope("searchsorted");
  const bool is_behind =
      check_arguments("searchsorted", sorted_sequence, values, out_int32, right, side, sorter);
  return search(sorted_sequence, values, out_int32, is_behind, sorter);
}

Tensor& searchsorted_out(Tensor& out, const Tensor& sorted_sequence, const Operand& values,
                         bool out_int32, bool right, std::optional<std::string_view> side,
                         const std::optional<Tensor>& sorter) {
  const kernels::OpScope scope("searchsorted");
  return search_into("searchsorted", out, sorted_sequence, values, out_int32, right, side, sorter);
}

Tensor bucketize(const Operand& values, const Tensor& boundaries, bool out_int32, bool right) {
  const kernels::OpScope scope("bucketize");
  check_boundaries(boundaries);
  check_arguments("bucketize", boundaries, values, out_int32, right, {}, {});
  return search(boundaries, values, out_int32, right, {});
}

Tensor& bucketize_out(Tensor& out, const Operand& values, const Tensor& boundaries, bool out_int32,
                      bool right) {
  const kernels::OpScope scope("bucketize");
  check_boundaries(boundaries);
  return search_into("bucketize", out, boundaries, values, out_int32, right, {}, {});
}

Tensor bincount(const Tensor& self, const std::optional<Tensor>& weights, std::int64_t minlength) {
  const kernels::OpScope scope("bincount");
  check_bincount(self, weights, minlength);
  const TensorOptions counted{.dtype = DType::i64, .device = self.device()};
  if (self.numel() == 0) return zeros({minlength}, counted);
  const auto [smallest, largest] = extent(self);
  if (smallest < 0) {
    throw InvalidArgument(
        fmt::format("bincount only supports 1-d non-negative integral inputs, but got {}",
                    smallest),
        self.device().str());
  }
  if (largest == std::numeric_limits<std::int64_t>::max()) {
    throw InvalidArgument(
        fmt::format("bincount: expected integers below 2^63 - 1, but got {}", largest),
        self.device().str());
  }
  const Shape sizes{std::max(largest + 1, minlength)};
  if (weights) {
    const DType dtype = weights->dtype() == DType::f32 ? DType::f32 : DType::f64;
    const Tensor sums = zeros(sizes, {.dtype = dtype, .device = self.device()});
    return sums.scatter_add_(0, self.to(DType::i64), weights->to(dtype));
  }
  const Tensor counts = zeros(sizes, counted);
  const Tensor in = self.contiguous();
  kernels::count_values(detail::target_of(self), counts.ref(), in.ref());
  return counts;
}

Tensor histc(const Tensor& self, std::int64_t bins, const Scalar& min, const Scalar& max) {
  const kernels::OpScope scope("histc");
  detail::check_defined("histc", "self", self);
  detail::check_computes("histc", self);
  return run_histc(self, bins, checked_range(self, bins, min, max));
}

Tensor& histc_out(Tensor& out, const Tensor& self, std::int64_t bins, const Scalar& min,
                  const Scalar& max) {
  const kernels::OpScope scope("histc");
  detail::common_device("histc", {{"out", out, detail::Role::output}, {"self", self}});
  detail::check_computes("histc", self);
  const Range range = checked_range(self, bins, min, max);
  detail::check_output("histc", "out", out, Shape{bins}, histogram_dtype(self));
  return out.copy_(run_histc(self, bins, range));
}

}  // namespace gantry
