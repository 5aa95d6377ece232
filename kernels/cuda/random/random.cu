#include "kernels/random/cuda_random.hpp"

#include "kernels/cuda/elementwise/loop.cuh"
#include "kernels/cuda/random/paired_blocks.cuh"
#include "kernels/impl/random.inl"

namespace gantry::kernels::cuda {
namespace {

__global__ void position_kernel(std::uint64_t* words, RandomPosition at) {
  words[0] = at.seed;
  words[1] = at.offset;
}

}  // namespace

void store_position(void* stream, std::uint64_t* words, RandomPosition at) {
  launch("store_position", stream, 1, 1, 0, position_kernel, words, at);
}

void uniform(void* stream, const TensorRef& out, RandomPosition at, double low, double high) {
  run_uniform(Loop(stream), out, at, low, high);
}

void normal(void* stream, const TensorRef& out, RandomPosition at, double mean,
            double standard_deviation) {
  run_normal(PairedLoop(stream), out, at, mean, standard_deviation);
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
