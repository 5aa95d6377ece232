// Random tensors and in-place draws.
#include <gantry/tensor/random.hpp>

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "kernels/random/random.hpp"
#include "tensor/check.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/named_ops.hpp"
#include "tensor/overlap.hpp"
#include "tensor/random/captured_draws.hpp"
#include "tensor/random/draws.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

using detail::generator_for;

// The range of consecutive integers that a dtype represents exactly.
struct IntegerRange {
  std::int64_t low;
  std::int64_t high;
};

IntegerRange exact_integers(DType dtype) {
  const auto symmetric = [](int bits) {
    return IntegerRange{-(std::int64_t{1} << bits), std::int64_t{1} << bits};
  };
  switch (dtype) {
    case DType::bool_:
      return {0, 1};
    case DType::u8:
      return {0, 255};
    case DType::i8:
      return {-128, 127};
    case DType::i16:
      return {-32768, 32767};
    case DType::i32:
      return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    case DType::i64:
      return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
    case DType::f16:
      return symmetric(11);
    case DType::bf16:
      return symmetric(8);
    case DType::f32:
      return symmetric(24);
    case DType::f64:
      return symmetric(53);
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::f8e4m3:
    case DType::f8e5m2:
      break;  // check_computes() refuses them
  }
  __builtin_unreachable();
}

// Checks the bounds and their difference, which the kernel represents in the elements' dtype.
void check_interval(const Tensor& self, double low, double high) {
  const auto refuse = [&self](const std::string& text) {
    throw InvalidArgument("uniform_: " + text, self.device().str());
  };
  if (!(low <= high)) {
    refuse(fmt::format("uniform_ expects to return a [from, to) range, but found from={} > to={}",
                       low, high));
  }
  const std::string_view type = torch_name(self.dtype());
  const auto holds = [&self](double number) {
    return std::isfinite(number) &&
           dispatch(self.dtype(), [&]<class T>(TypeTag<T>) { return Scalar(number).fits<T>(); });
  };
  if (!holds(low)) refuse(fmt::format("from is out of bounds for {}, got {}", type, low));
  if (!holds(high)) refuse(fmt::format("to is out of bounds for {}, got {}", type, high));
  if (!holds(high - low)) {
    refuse(fmt::format(
        "uniform_ expects to-from <= std::numeric_limits<{}>::max(), but found to={} and from={} "
        "which result in to-from to exceed the limit",
        type, high, low));
  }
}

void check_bounds(std::string_view op, DType dtype, std::int64_t low, std::int64_t high) {
  detail::check_computes(op, dtype);
  if (low >= high) {
    throw InvalidArgument(
        fmt::format("{}: random_ expects 'from' to be less than 'to', but got from={} >= to={}", op,
                    low, high));
  }
  const IntegerRange range = exact_integers(dtype);
  if (low < range.low || low > range.high) {
    throw InvalidArgument(
        fmt::format("{}: from is out of bounds for {}, got {}", op, torch_name(dtype), low));
  }
  if (high - 1 > range.high || high - 1 < range.low) {
    throw InvalidArgument(
        fmt::format("{}: to - 1 is out of bounds for {}, got {}", op, torch_name(dtype), high - 1));
  }
}

// The device of a factory's tensor and generator.
Device device_of(const TensorOptions& options) {
  return options.device.value_or(Device::cpu()).resolved();
}

TensorOptions like(std::string_view op, const Tensor& other, TensorOptions options) {
  detail::check_defined(op, "other", other);
  if (!options.dtype) options.dtype = other.dtype();
  if (!options.device) options.device = other.device();
  return options;
}

}  // namespace

Generator& detail::generator_for(std::string_view op, Device device, GeneratorRef given) {
  Generator* const generator = given.get();
  if (generator == nullptr) return default_generator(device);
  if (generator->device() != device) {
    throw InvalidArgument(
        fmt::format("{}: Expected a '{}' device type for generator but found '{}'", op,
                    device.str(), generator->device().str()));
  }
  return *generator;
}

Tensor rand(const Shape& sizes, const TensorOptions& options, GeneratorRef generator) {
  detail::check_floating("rand", options.dtype.value_or(DType::f32), options.device);
  Generator& source = generator_for("rand", device_of(options), generator);
  Tensor result = detail::empty_as("rand", sizes, options);
  kernels::uniform(detail::target_of(result), result.ref(), detail::next_draw(source), 0, 1);
  return result;
}

Tensor randn(const Shape& sizes, const TensorOptions& options, GeneratorRef generator) {
  detail::check_floating("randn", options.dtype.value_or(DType::f32), options.device);
  Generator& source = generator_for("randn", device_of(options), generator);
  Tensor result = detail::empty_as("randn", sizes, options);
  kernels::normal(detail::target_of(result), result.ref(), detail::next_draw(source), 0, 1);
  return result;
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& sizes,
               const TensorOptions& options, GeneratorRef generator) {
  TensorOptions typed = options;
  typed.dtype = options.dtype.value_or(DType::i64);
  check_bounds("randint", *typed.dtype, low, high);
  Generator& source = generator_for("randint", device_of(options), generator);
  Tensor result = detail::empty_as("randint", sizes, typed);
  kernels::randint(detail::target_of(result), result.ref(), detail::next_draw(source), low, high);
  return result;
}

Tensor randint(std::int64_t high, const Shape& sizes, const TensorOptions& options,
               GeneratorRef generator) {
  return randint(0, high, sizes, options, generator);
}

Tensor randperm(std::int64_t n, const TensorOptions& options, GeneratorRef generator) {
  if (n < 0) throw InvalidArgument(fmt::format("randperm: n must be non-negative, got {}", n));
  const DType dtype = options.dtype.value_or(DType::i64);
  detail::check_computes("randperm", dtype);
  if (n > 0 && n - 1 > exact_integers(dtype).high) {
    throw InvalidArgument(
        fmt::format("randperm: n is too large for result tensor type: '{}'", torch_name(dtype)));
  }
  Generator& source = generator_for("randperm", device_of(options), generator);
  TensorOptions typed = options;
  typed.dtype = dtype;
  Tensor result = detail::empty_as("randperm", {n}, typed);
  const Tensor drawn =
      dtype == DType::i64 ? result : empty({n}, {.dtype = DType::i64, .device = result.device()});
  kernels::randperm(detail::target_of(drawn), drawn.ref(), detail::next_draw(source));
  if (dtype != DType::i64) result.copy_(drawn);
  return result;
}

Tensor bernoulli(const Tensor& probability, GeneratorRef generator) {
  detail::check_defined("bernoulli", "probability", probability);
  detail::check_floating("bernoulli", probability.dtype(), probability.device());
  Generator& source = generator_for("bernoulli", probability.device(), generator);
  Tensor result = empty_like(probability);
  kernels::bernoulli(detail::target_of(result), result.ref(), probability.ref(),
                     detail::next_draw(source));
  return result;
}

Tensor rand_like(const Tensor& other, const TensorOptions& options, GeneratorRef generator) {
  const TensorOptions merged = like("rand_like", other, options);
  return rand(other.sizes(), merged, generator);
}

Tensor randn_like(const Tensor& other, const TensorOptions& options, GeneratorRef generator) {
  const TensorOptions merged = like("randn_like", other, options);
  return randn(other.sizes(), merged, generator);
}

Tensor randint_like(const Tensor& other, std::int64_t low, std::int64_t high,
                    const TensorOptions& options, GeneratorRef generator) {
  const TensorOptions merged = like("randint_like", other, options);
  return randint(low, high, other.sizes(), merged, generator);
}

Tensor& Tensor::normal_(double mean, double std, GeneratorRef generator) const {
  detail::check_defined("normal_", "self", *this);
  detail::check_floating("normal_", dtype(), device());
  if (!(std >= 0)) {
    throw InvalidArgument(fmt::format("normal_: normal expects std >= 0.0, but found std {}", std),
                          device().str());
  }
  detail::check_writable("normal_", *this);
  Generator& source = generator_for("normal_", device(), generator);
  kernels::normal(detail::target_of(*this), ref(), detail::next_draw(source), mean, std);
  return handle();
}

Tensor& Tensor::uniform_(double low, double high, GeneratorRef generator) const {
  detail::check_defined("uniform_", "self", *this);
  detail::check_floating("uniform_", dtype(), device());
  check_interval(*this, low, high);
  detail::check_writable("uniform_", *this);
  Generator& source = generator_for("uniform_", device(), generator);
  kernels::uniform(detail::target_of(*this), ref(), detail::next_draw(source), low, high);
  return handle();
}

Tensor& Tensor::random_(std::int64_t low, std::int64_t high, GeneratorRef generator) const {
  detail::check_defined("random_", "self", *this);
  check_bounds("random_", dtype(), low, high);
  detail::check_writable("random_", *this);
  Generator& source = generator_for("random_", device(), generator);
  kernels::randint(detail::target_of(*this), ref(), detail::next_draw(source), low, high);
  return handle();
}

Tensor& Tensor::random_(GeneratorRef generator) const {
  detail::check_defined("random_", "self", *this);
  detail::check_computes("random_", dtype());
  const std::int64_t highest = exact_integers(dtype()).high;
  detail::check_writable("random_", *this);
  Generator& source = generator_for("random_", device(), generator);
  // The kernel computes modulo 2^64, so `high` may be one past the largest i64.
  const auto past = static_cast<std::int64_t>(static_cast<std::uint64_t>(highest) + 1);
  kernels::randint(detail::target_of(*this), ref(), detail::next_draw(source), 0, past);
  return handle();
}

Tensor& Tensor::bernoulli_(double probability, GeneratorRef generator) const {
  detail::check_defined("bernoulli_", "self", *this);
  if (!(probability >= 0 && probability <= 1)) {
    throw InvalidArgument(
        fmt::format("bernoulli_: bernoulli_ expects p to be in [0, 1], but got p={}", probability),
        device().str());
  }
  detail::check_writable("bernoulli_", *this);
  Generator& source = generator_for("bernoulli_", device(), generator);
  const Tensor p = full({}, probability, {.dtype = DType::f64, .device = device()});
  kernels::bernoulli(detail::target_of(*this), ref(), detail::broadcast_ref(p, sizes()),
                     detail::next_draw(source));
  return handle();
}

}  // namespace gantry
