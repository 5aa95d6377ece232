#include "kernels/cuda/launch.cuh"
#include "kernels/impl/distributions.inl"

namespace gantry::kernels::cuda {

void uniform_shard(void* stream, const TensorRef& out, RandomPosition at, const ShardPlace& place) {
  run_uniform_shard(Loop(stream), out, at, place);
}

void normal_shard(void* stream, const TensorRef& out, RandomPosition at, const ShardPlace& place) {
  run_normal_shard(Loop(stream), out, at, place);
}

void exponential(void* stream, const TensorRef& out, RandomPosition at, double rate) {
  run_distribution(Loop(stream), "exponential", out, functors::Exponential(at, rate));
}

void cauchy(void* stream, const TensorRef& out, RandomPosition at, double median, double width) {
  run_distribution(Loop(stream), "cauchy", out, functors::Cauchy(at, median, width));
}

void log_normal(void* stream, const TensorRef& out, RandomPosition at, double mean,
                double standard_deviation) {
  run_distribution(Loop(stream), "log_normal", out,
                   functors::LogNormal(at, mean, standard_deviation));
}

void geometric(void* stream, const TensorRef& out, RandomPosition at, double probability) {
  run_geometric(Loop(stream), out, at, probability);
}

void poisson(void* stream, const TensorRef& out, const TensorRef& rates, RandomPosition at) {
  run_poisson(Loop(stream), out, rates, at);
}

void categorical(void* stream, const TensorRef& out, const TensorRef& sums, RandomPosition at) {
  run_categorical(Loop(stream), out, sums, at);
}

}  // namespace gantry::kernels::cuda
