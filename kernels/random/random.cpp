#include "kernels/random/random.hpp"

#include <gantry/memory/caching_allocator.hpp>

#include "kernels/dispatch.hpp"
#include "kernels/random/cuda_random.hpp"
#include "kernels/random/host_random.hpp"

namespace gantry::kernels {

void store_position(const Target& target, std::uint64_t* words, RandomPosition at) {
  submit(
      "store_position", target, {}, [=] { host::store_position(words, at); },
      [&](void* stream) { cuda::store_position(stream, words, at); });
}

void uniform(const Target& target, const TensorRef& out, RandomPosition at, double low,
             double high) {
  if (out.numel() == 0) return;
  submit(
      "uniform", target, {&out}, [=] { host::uniform(out, at, low, high); },
      [&](void* stream) { cuda::uniform(stream, out, at, low, high); });
}

void normal(const Target& target, const TensorRef& out, RandomPosition at, double mean,
            double standard_deviation) {
  if (out.numel() == 0) return;
  submit(
      "normal", target, {&out}, [=] { host::normal(out, at, mean, standard_deviation); },
      [&](void* stream) { cuda::normal(stream, out, at, mean, standard_deviation); });
}

void randint(const Target& target, const TensorRef& out, RandomPosition at, std::int64_t low,
             std::int64_t high) {
  if (out.numel() == 0) return;
  submit(
      "randint", target, {&out}, [=] { host::randint(out, at, low, high); },
      [&](void* stream) { cuda::randint(stream, out, at, low, high); });
}

void bernoulli(const Target& target, const TensorRef& out, const TensorRef& probability,
               RandomPosition at) {
  if (out.numel() == 0) return;
  submit(
      "bernoulli", target, {&out, &probability}, [=] { host::bernoulli(out, probability, at); },
      [&](void* stream) { cuda::bernoulli(stream, out, probability, at); });
}

void randperm(const Target& target, const TensorRef& out, RandomPosition at) {
  if (out.numel() == 0) return;
  submit(
      "randperm", target, {&out}, [=] { host::randperm(out, at); },
      [&](void* stream) {
        const memory::Buffer workspace =
            memory::allocate(target.stream(), cuda::randperm_workspace(out.numel()));
        cuda::randperm(stream, out, at, workspace.data());
      });
}

}  // namespace gantry::kernels
