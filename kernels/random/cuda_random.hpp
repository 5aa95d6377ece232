#pragma once

#include <cstddef>

#include "kernels/random/random.hpp"

// The kernels of random.hpp on a cudaStream_t of the current device.
namespace gantry::kernels::cuda {

void store_position(void* stream, std::uint64_t* words, RandomPosition at);
void uniform(void* stream, const TensorRef& out, RandomPosition at, double low, double high);
void normal(void* stream, const TensorRef& out, RandomPosition at, double mean,
            double standard_deviation);
void randint(void* stream, const TensorRef& out, RandomPosition at, std::int64_t low,
             std::int64_t high);
void bernoulli(void* stream, const TensorRef& out, const TensorRef& probability, RandomPosition at);

// Bytes of scratch memory for randperm of n elements.
std::size_t randperm_workspace(std::int64_t n);
void randperm(void* stream, const TensorRef& out, RandomPosition at, void* workspace);

}  // namespace gantry::kernels::cuda
