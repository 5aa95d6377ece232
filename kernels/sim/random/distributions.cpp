#include "kernels/impl/distributions.inl"
#include "kernels/sim/launch.hpp"

namespace gantry::kernels::host {

void uniform_shard(const TensorRef& out, RandomPosition at, const ShardPlace& place) {
  run_uniform_shard(Loop{}, out, at.resolved(), place);
}

void normal_shard(const TensorRef& out, RandomPosition at, const ShardPlace& place) {
  run_normal_shard(Loop{}, out, at.resolved(), place);
}

void exponential(const TensorRef& out, RandomPosition at, double rate) {
  run_distribution(Loop{}, "exponential", out, functors::Exponential(at.resolved(), rate));
}

void cauchy(const TensorRef& out, RandomPosition at, double median, double width) {
  run_distribution(Loop{}, "cauchy", out, functors::Cauchy(at.resolved(), median, width));
}

void log_normal(const TensorRef& out, RandomPosition at, double mean, double standard_deviation) {
  run_distribution(Loop{}, "log_normal", out,
                   functors::LogNormal(at.resolved(), mean, standard_deviation));
}

void geometric(const TensorRef& out, RandomPosition at, double probability) {
  run_geometric(Loop{}, out, at.resolved(), probability);
}

void poisson(const TensorRef& out, const TensorRef& rates, RandomPosition at) {
  run_poisson(Loop{}, out, rates, at.resolved());
}

void categorical(const TensorRef& out, const TensorRef& sums, RandomPosition at) {
  run_categorical(Loop{}, out, sums, at.resolved());
}

}  // namespace gantry::kernels::host
