#pragma once

#include "kernels/random/random.hpp"

// The kernels of random.hpp on the calling thread.
namespace gantry::kernels::host {

void store_position(std::uint64_t* words, RandomPosition at);
void uniform(const TensorRef& out, RandomPosition at, double low, double high);
void normal(const TensorRef& out, RandomPosition at, double mean, double standard_deviation);
void randint(const TensorRef& out, RandomPosition at, std::int64_t low, std::int64_t high);
void bernoulli(const TensorRef& out, const TensorRef& probability, RandomPosition at);
void randperm(const TensorRef& out, RandomPosition at);

}  // namespace gantry::kernels::host
