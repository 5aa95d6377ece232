#include "kernels/impl/distributions.inl"
#include "kernels/host/launch.hpp"

namespace gantry::kernels::host {

namespace {

struct ShardLoop {
  template <class Out, class Op>
  void run(const char* /*name*/, const Op& op, const TensorRef& out,
           const ShardPlace& place) const {
    auto* data = static_cast<Out*>(out.data);
    for (std::int64_t run = 0; run < place.runs; ++run) {
      Loop::run_block_range(op, data + run * place.length, place.first + run * place.spacing,
                            place.length);
    }
  }
};

}  // namespace

void uniform_shard(const TensorRef& out, RandomPosition at, const ShardPlace& place) {
  run_uniform_shard(ShardLoop{}, out, at.resolved(), place);
}

void normal_shard(const TensorRef& out, RandomPosition at, const ShardPlace& place) {
  run_normal_shard(ShardLoop{}, out, at.resolved(), place);
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
