#include "kernels/cuda/random.hpp"

#include "kernels/cuda/launch.cuh"
#include "kernels/impl/random.inl"

namespace gantry::kernels::cuda {

void uniform(void* stream, const TensorRef& out, RandomPosition at, double low, double high) {
  run_uniform(Loop(stream), out, at, low, high);
}

void normal(void* stream, const TensorRef& out, RandomPosition at, double mean,
            double standard_deviation) {
  run_normal(Loop(stream), out, at, mean, standard_deviation);
}

void randint(void* stream, const TensorRef& out, RandomPosition at, std::int64_t low,
             std::int64_t high) {
  run_randint(Loop(stream), out, at, low, high);
}

void bernoulli(void* stream, const TensorRef& out, const TensorRef& probability,
               RandomPosition at) {
  run_bernoulli(Loop(stream), out, probability, at);
}

}  // namespace gantry::kernels::cuda
