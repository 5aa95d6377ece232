#include "kernels/random/distributions.hpp"

#include "kernels/dispatch.hpp"

namespace gantry::kernels {

void uniform_shard(const Target& target, const TensorRef& out, RandomPosition at,
                   const ShardPlace& place) {
  if (out.numel() == 0) return;
  submit(
      "uniform", target, {&out}, [=] { host::uniform_shard(out, at, place); },
      [&](void* stream) { cuda::uniform_shard(stream, out, at, place); });
}

void normal_shard(const Target& target, const TensorRef& out, RandomPosition at,
                  const ShardPlace& place) {
  if (out.numel() == 0) return;
  submit(
      "normal", target, {&out}, [=] { host::normal_shard(out, at, place); },
      [&](void* stream) { cuda::normal_shard(stream, out, at, place); });
}

void exponential(const Target& target, const TensorRef& out, RandomPosition at, double rate) {
  if (out.numel() == 0) return;
  submit(
      "exponential", target, {&out}, [=] { host::exponential(out, at, rate); },
      [&](void* stream) { cuda::exponential(stream, out, at, rate); });
}

void cauchy(const Target& target, const TensorRef& out, RandomPosition at, double median,
            double width) {
  if (out.numel() == 0) return;
  submit(
      "cauchy", target, {&out}, [=] { host::cauchy(out, at, median, width); },
      [&](void* stream) { cuda::cauchy(stream, out, at, median, width); });
}

void log_normal(const Target& target, const TensorRef& out, RandomPosition at, double mean,
                double standard_deviation) {
  if (out.numel() == 0) return;
  submit(
      "log_normal", target, {&out}, [=] { host::log_normal(out, at, mean, standard_deviation); },
      [&](void* stream) { cuda::log_normal(stream, out, at, mean, standard_deviation); });
}

void geometric(const Target& target, const TensorRef& out, RandomPosition at, double probability) {
  if (out.numel() == 0) return;
  submit(
      "geometric", target, {&out}, [=] { host::geometric(out, at, probability); },
      [&](void* stream) { cuda::geometric(stream, out, at, probability); });
}

void poisson(const Target& target, const TensorRef& out, const TensorRef& rates,
             RandomPosition at) {
  if (out.numel() == 0) return;
  submit(
      "poisson", target, {&out, &rates}, [=] { host::poisson(out, rates, at); },
      [&](void* stream) { cuda::poisson(stream, out, rates, at); });
}

void categorical(const Target& target, const TensorRef& out, const TensorRef& sums,
                 RandomPosition at) {
  if (out.numel() == 0) return;
  submit(
      "multinomial", target, {&out, &sums}, [=] { host::categorical(out, sums, at); },
      [&](void* stream) { cuda::categorical(stream, out, sums, at); });
}

}  // namespace gantry::kernels
