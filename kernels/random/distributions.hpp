#pragma once

#include "kernels/random/random.hpp"

// Random numbers of further distributions, as random.hpp: element i is a function of the position
// and of i, with the same bits on every platform. All are computed in f64 and converted once.
namespace gantry::kernels {

// Equal runs of a larger tensor's elements, in its row-major order, which are dense in `out`.
struct ShardPlace {
  std::int64_t first = 0;    // element of the first run
  std::int64_t spacing = 0;  // elements from one run to the next
  std::int64_t runs = 0;
  std::int64_t length = 0;  // elements of a run
};
// uniform(…, 0, 1) and normal(…, 0, 1) of the larger tensor, for its elements in `out`, at the cost
// of those alone.
void uniform_shard(const Target& target, const TensorRef& out, RandomPosition at,
                   const ShardPlace& place);
void normal_shard(const Target& target, const TensorRef& out, RandomPosition at,
                  const ShardPlace& place);

// Exponential: -log(u) / rate. DTypes: floating.
void exponential(const Target& target, const TensorRef& out, RandomPosition at, double rate);
// Cauchy: median + width * tan(pi (u - 1/2)). DTypes: floating.
void cauchy(const Target& target, const TensorRef& out, RandomPosition at, double median,
            double width);
// e to the power of a normal number. DTypes: floating.
void log_normal(const Target& target, const TensorRef& out, RandomPosition at, double mean,
                double standard_deviation);
// The number of trials up to the first success, of probability `probability` in (0, 1). DTypes:
// all.
void geometric(const Target& target, const TensorRef& out, RandomPosition at, double probability);
// Poisson, by the rates in `rates`; NaN for a negative rate. DTypes: one floating dtype for both.
void poisson(const Target& target, const TensorRef& out, const TensorRef& rates, RandomPosition at);
// Indices with the probabilities of which `sums` [rows, n] holds the running sums. `out` [rows, k]
// is i64, `sums` is f64, both contiguous.
void categorical(const Target& target, const TensorRef& out, const TensorRef& sums,
                 RandomPosition at);

namespace host {
void uniform_shard(const TensorRef& out, RandomPosition at, const ShardPlace& place);
void normal_shard(const TensorRef& out, RandomPosition at, const ShardPlace& place);
void exponential(const TensorRef& out, RandomPosition at, double rate);
void cauchy(const TensorRef& out, RandomPosition at, double median, double width);
void log_normal(const TensorRef& out, RandomPosition at, double mean, double standard_deviation);
void geometric(const TensorRef& out, RandomPosition at, double probability);
void poisson(const TensorRef& out, const TensorRef& rates, RandomPosition at);
void categorical(const TensorRef& out, const TensorRef& sums, RandomPosition at);
}  // namespace host

namespace cuda {
void uniform_shard(void* stream, const TensorRef& out, RandomPosition at, const ShardPlace& place);
void normal_shard(void* stream, const TensorRef& out, RandomPosition at, const ShardPlace& place);
void exponential(void* stream, const TensorRef& out, RandomPosition at, double rate);
void cauchy(void* stream, const TensorRef& out, RandomPosition at, double median, double width);
void log_normal(void* stream, const TensorRef& out, RandomPosition at, double mean,
                double standard_deviation);
void geometric(void* stream, const TensorRef& out, RandomPosition at, double probability);
void poisson(void* stream, const TensorRef& out, const TensorRef& rates, RandomPosition at);
void categorical(void* stream, const TensorRef& out, const TensorRef& sums, RandomPosition at);
}  // namespace cuda

}  // namespace gantry::kernels
