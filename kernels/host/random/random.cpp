#include "kernels/random/host_random.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/host/launch.hpp"
#include "kernels/impl/random.inl"

namespace gantry::kernels::host {

void store_position(std::uint64_t* words, RandomPosition at) {
  words[0] = at.seed;
  words[1] = at.offset;
}

void uniform(const TensorRef& out, RandomPosition at, double low, double high) {
  run_uniform(Loop{}, out, at.resolved(), low, high);
}

void normal(const TensorRef& out, RandomPosition at, double mean, double standard_deviation) {
  run_normal(Loop{}, out, at.resolved(), mean, standard_deviation);
}

void randint(const TensorRef& out, RandomPosition at, std::int64_t low, std::int64_t high) {
  run_randint(Loop{}, out, at.resolved(), low, high);
}

void bernoulli(const TensorRef& out, const TensorRef& probability, RandomPosition at) {
  run_bernoulli(Loop{}, out, probability, at.resolved());
}

void randperm(const TensorRef& out, RandomPosition at) {
  const auto n = static_cast<std::size_t>(out.numel());
  const functors::SortKey key(at.resolved());
  std::vector<std::uint64_t> keys(n);
  for (std::size_t i = 0; i < n; ++i) keys[i] = key(static_cast<std::int64_t>(i));
  auto* positions = static_cast<std::int64_t*>(out.data);
  std::iota(positions, positions + n, std::int64_t{0});
  std::stable_sort(positions, positions + n, [&](std::int64_t a, std::int64_t b) {
    return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
  });
}

}  // namespace gantry::kernels::host
