#include <gantry/tensor/distributions.hpp>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/promote.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/sorting.hpp>

#include "kernels/random/distributions.hpp"
#include "tensor/check.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/named_ops.hpp"
#include "tensor/overlap.hpp"
#include "tensor/random/captured_draws.hpp"
#include "tensor/random/draws.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

void check_positive(std::string_view op, std::string_view name, double value, Device device) {
  if (value > 0) return;
  throw InvalidArgument(
      fmt::format("{}: {} expects {} > 0.0, but found {}={}", op, op, name, name, value),
      device.str());
}

// The position of the next draw into `self`, after the checks of an output.
kernels::RandomPosition position_for(std::string_view op, const Tensor& self,
                                     GeneratorRef generator) {
  detail::check_writable(op, self);
  return detail::next_draw(detail::generator_for(op, self.device(), generator));
}

// Throws InvalidArgument with `text` if an element of is_bad(values) is true. Values on a device
// are not read.
template <class Test>
void refuse_where(const Tensor& values, const Test& is_bad, std::string_view op,
                  std::string_view text) {
  if (!values.is_cpu() || !is_bad(values).any().template item<bool>()) return;
  throw InvalidArgument(fmt::format("{}: {}", op, text), values.device().str());
}

Tensor is_negative(const Tensor& values) { return values < 0; }

// mean + std * standard normal numbers; at least one is a tensor.
Tensor run_normal(const Operand& mean, const Operand& std, GeneratorRef generator) {
  const Operand& first = mean.is_tensor() ? mean : std;
  Shape sizes;
  for (const Operand* operand : {&mean, &std}) {
    if (!operand->is_tensor()) continue;
    detail::check_defined("normal", operand == &mean ? "mean" : "std", operand->tensor());
    detail::common_device("normal", {{"mean", first.tensor()}, {"std", operand->tensor()}});
    detail::check_floating("normal", operand->tensor().dtype(), operand->tensor().device());
    sizes = detail::common_shape("normal", {&sizes, &operand->tensor().sizes()},
                                 operand->tensor().device());
  }
  const Device device = first.tensor().device();
  const std::array operands{mean, std};
  const DType dtype = result_type(operands);
  if (std.is_tensor()) {
    refuse_where(std.tensor(), is_negative, "normal", "normal expects all elements of std >= 0.0");
  } else if (!(std.number().to<double>() >= 0)) {
    throw InvalidArgument(fmt::format("normal: normal expects std >= 0.0, but found std {}",
                                      std.number().to<double>()),
                          device.str());
  }
  const TensorOptions options{.dtype = dtype, .device = device};
  const auto as_tensor = [&](const Operand& operand) {
    return operand.is_tensor() ? operand.tensor() : full({}, operand.number(), options);
  };
  Generator& source = detail::generator_for("normal", device, generator);
  const Tensor standard = randn(sizes, options, &source);
  return addcmul(as_tensor(mean), standard, as_tensor(std));
}

}  // namespace

const Tensor& detail::exponential_(const Tensor& self, double lambda, GeneratorRef generator) {
  detail::check_defined("exponential_", "self", self);
  detail::check_floating("exponential_", self.dtype(), self.device());
  check_positive("exponential_", "lambda", lambda, self.device());
  const kernels::RandomPosition at = position_for("exponential_", self, generator);
  kernels::exponential(target_of(self), self.ref(), at, lambda);
  return self;
}

const Tensor& detail::cauchy_(const Tensor& self, double median, double sigma,
                              GeneratorRef generator) {
  detail::check_defined("cauchy_", "self", self);
  detail::check_floating("cauchy_", self.dtype(), self.device());
  check_positive("cauchy_", "sigma", sigma, self.device());
  const kernels::RandomPosition at = position_for("cauchy_", self, generator);
  kernels::cauchy(target_of(self), self.ref(), at, median, sigma);
  return self;
}

const Tensor& detail::log_normal_(const Tensor& self, double mean, double std,
                                  GeneratorRef generator) {
  detail::check_defined("log_normal_", "self", self);
  detail::check_floating("log_normal_", self.dtype(), self.device());
  check_positive("log_normal_", "std", std, self.device());
  const kernels::RandomPosition at = position_for("log_normal_", self, generator);
  kernels::log_normal(target_of(self), self.ref(), at, mean, std);
  return self;
}

const Tensor& detail::geometric_(const Tensor& self, double p, GeneratorRef generator) {
  detail::check_defined("geometric_", "self", self);
  if (self.dtype() == DType::bool_) {
    throw DTypeError("geometric_: expected a tensor of numbers, but got Bool", self.device().str());
  }
  if (!(p > 0 && p < 1)) {
    throw InvalidArgument(
        fmt::format("geometric_: geometric_ expects p to be in (0, 1), but got p={}", p),
        self.device().str());
  }
  const kernels::RandomPosition at = position_for("geometric_", self, generator);
  kernels::geometric(target_of(self), self.ref(), at, p);
  return self;
}

Tensor normal(double mean, double std, const Shape& sizes, const TensorOptions& options,
              GeneratorRef generator) {
  if (!(std >= 0)) {
    throw InvalidArgument(fmt::format("normal: normal expects std >= 0.0, but found std {}", std));
  }
  const DType dtype = options.dtype.value_or(DType::f32);
  const Device device = options.device.value_or(Device::cpu()).resolved();
  detail::check_floating("normal", dtype, device);
  Generator& source = detail::generator_for("normal", device, generator);
  Tensor result = detail::empty_as("normal", sizes, options);
  kernels::normal(detail::target_of(result), result.ref(), detail::next_draw(source), mean, std);
  return result;
}

Tensor normal(const Tensor& mean, const Tensor& std, GeneratorRef generator) {
  return run_normal(mean, std, generator);
}
Tensor normal(const Tensor& mean, double std, GeneratorRef generator) {
  return run_normal(mean, std, generator);
}
Tensor normal(double mean, const Tensor& std, GeneratorRef generator) {
  return run_normal(mean, std, generator);
}

namespace {

// The part of the kernel's numbers for a tensor of `sizes`.
Tensor run_shard(std::string_view op, const Shape& sizes, const Shard& shard, TensorOptions options,
                 GeneratorRef generator,
                 void (*kernel)(const kernels::Target&, const TensorRef&, kernels::RandomPosition,
                                const kernels::ShardPlace&)) {
  const Device device = options.device.value_or(Device::cpu()).resolved();
  detail::check_sizes(op, sizes);
  detail::check_floating(op, options.dtype.value_or(DType::f32), device);
  if (sizes.empty()) {
    throw ShapeError(fmt::format("{}: expected at least one dim, but got sizes []", op),
                     device.str());
  }
  const int dim = detail::wrap_dim(op, shard.dim, sizes.size(), device);
  const std::int64_t size = sizes[dim];
  if (shard.start < 0 || shard.length < 0 || shard.start > size - shard.length) {
    throw IndexError(fmt::format("{}: start ({}) + length ({}) exceeds dimension size ({}).", op,
                                 shard.start, shard.length, size),
                     device.str());
  }
  Shape own = sizes;
  own[dim] = shard.length;
  Generator& source = detail::generator_for(op, device, generator);
  const Tensor result = detail::empty_as(op, own, options);
  std::int64_t inner = 1;
  for (int d = dim + 1; d < sizes.size(); ++d) inner *= sizes[d];
  kernels::ShardPlace place;
  place.first = shard.start * inner;
  place.spacing = size * inner;
  place.length = shard.length * inner;
  place.runs = place.length == 0 ? 0 : result.numel() / place.length;
  kernel(detail::target_of(result), result.ref(), detail::next_draw(source), place);
  return result;
}

}  // namespace

Tensor rand_shard(const Shape& sizes, const Shard& shard, const TensorOptions& options,
                  GeneratorRef generator) {
  return run_shard("rand_shard", sizes, shard, options, generator, kernels::uniform_shard);
}

Tensor randn_shard(const Shape& sizes, const Shard& shard, const TensorOptions& options,
                   GeneratorRef generator) {
  return run_shard("randn_shard", sizes, shard, options, generator, kernels::normal_shard);
}

Tensor poisson(const Tensor& rates, GeneratorRef generator) {
  detail::check_defined("poisson", "rates", rates);
  detail::check_floating("poisson", rates.dtype(), rates.device());
  refuse_where(rates, is_negative, "poisson",
               "invalid Poisson rate, expected rate to be non-negative");
  Generator& source = detail::generator_for("poisson", rates.device(), generator);
  Tensor result = empty(rates.sizes(), {.dtype = rates.dtype(), .device = rates.device()});
  kernels::poisson(detail::target_of(result), result.ref(), rates.ref(), detail::next_draw(source));
  return result;
}

namespace {

void check_weights(const Tensor& weights, std::int64_t samples, bool replacement) {
  const auto refuse = [&weights](const std::string& text) {
    throw InvalidArgument("multinomial: " + text, weights.device().str());
  };
  if (weights.dim() != 1 && weights.dim() != 2) {
    throw ShapeError(
        fmt::format("multinomial: prob_dist must be 1 or 2 dim, but got {}", weights.dim()),
        weights.device().str());
  }
  detail::check_floating("multinomial", weights.dtype(), weights.device());
  const std::int64_t n = weights.size(-1);
  if (samples <= 0) {
    refuse(fmt::format("cannot sample n_sample <= 0 samples, but got {}", samples));
  }
  if (!replacement && samples > n) {
    refuse(
        fmt::format("cannot sample n_sample > prob_dist.size(-1) samples without replacement, "
                    "but got {} > {}",
                    samples, n));
  }
  if (weights.numel() == 0) {
    if (n == 0) refuse("expected at least one weight per row, but got 0");
    return;
  }
  if (!weights.is_cpu()) return;
  refuse_where(
      weights, [](const Tensor& w) { return logical_or(w < 0, logical_not(w.isfinite())); },
      "multinomial", "probability tensor contains either `inf`, `nan` or element < 0");
  const Tensor present = weights.count_nonzero(-1);
  refuse_where(
      present, [](const Tensor& count) { return count.eq(0); }, "multinomial",
      "invalid multinomial distribution (sum of probabilities <= 0)");
  if (replacement) return;
  refuse_where(
      present, [samples](const Tensor& count) { return count < samples; }, "multinomial",
      "invalid multinomial distribution (with replacement=False, not enough non-negative category "
      "to sample)");
}

// The weights in f64. Rows whose sums and quotients might be beyond its range are divided by a
// power of two, which changes no probability.
Tensor as_f64(const Tensor& rows) {
  if (rows.dtype() != DType::f64) return rows.to(DType::f64);
  const Tensor small = full({}, 0x1p-200, {.dtype = DType::f64, .device = rows.device()});
  return rows.mul(where(rows.amax(1, true) > 0x1p900, small, 1.0));
}

}  // namespace

Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement,
                   GeneratorRef generator) {
  detail::check_defined("multinomial", "weights", weights);
  check_weights(weights, samples, replacement);
  Generator& source = detail::generator_for("multinomial", weights.device(), generator);
  const Tensor rows = weights.dim() == 1 ? weights.unsqueeze(0) : weights;
  Tensor result;
  if (replacement) {
    const Tensor sums = as_f64(rows).cumsum(1);
    result = empty({rows.size(0), samples}, {.dtype = DType::i64, .device = rows.device()});
    kernels::categorical(detail::target_of(result), result.ref(), sums.ref(),
                         detail::next_draw(source));
  } else {
    // The largest of p / e, with e exponential, is index i with a probability proportional to p.
    // Without it, the largest is again distributed so among the others. Equal keys, those of weight
    // 0, are in the order of their indices.
    Tensor keys = empty(rows.sizes(), {.dtype = DType::f64, .device = rows.device()});
    kernels::exponential(detail::target_of(keys), keys.ref(), detail::next_draw(source), 1);
    div_out(keys, as_f64(rows), keys);
    result = samples == 1 ? argmax(keys, 1, true) : topk(keys, samples, 1).indices;
  }
  return weights.dim() == 1 ? result.squeeze(0) : result;
}

Tensor& Tensor::exponential_(double lambda, GeneratorRef generator) const {
  detail::exponential_(*this, lambda, generator);
  return handle();
}
Tensor& Tensor::cauchy_(double median, double sigma, GeneratorRef generator) const {
  detail::cauchy_(*this, median, sigma, generator);
  return handle();
}
Tensor& Tensor::log_normal_(double mean, double std, GeneratorRef generator) const {
  detail::log_normal_(*this, mean, std, generator);
  return handle();
}
Tensor& Tensor::geometric_(double p, GeneratorRef generator) const {
  detail::geometric_(*this, p, generator);
  return handle();
}
Tensor Tensor::multinomial(std::int64_t samples, bool replacement, GeneratorRef generator) const {
  return gantry::multinomial(*this, samples, replacement, generator);
}

}  // namespace gantry
