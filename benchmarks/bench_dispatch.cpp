#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {

// Host time to submit one operation on 16 elements: what a program pays besides the kernel.
void register_dispatch() {
  static const auto options = [] { return TensorOptions{.dtype = f32, .device = Device::cuda(0)}; };
  add("dispatch/add", [](benchmark::State& state) {
    const Tensor a = ones({16}, options());
    const Tensor b = ones({16}, options());
    time_host(state, [&] { benchmark::DoNotOptimize(a.add(b)); });
  });
  add("dispatch/add_", [](benchmark::State& state) {
    Tensor a = ones({16}, options());
    const Tensor b = ones({16}, options());
    time_host(state, [&] { a.add_(b); });
  });
  add("dispatch/fill_", [](benchmark::State& state) {
    Tensor a = ones({16}, options());
    time_host(state, [&] { a.fill_(2.0); });
  });
  add("dispatch/sum", [](benchmark::State& state) {
    const Tensor a = ones({16}, options());
    time_host(state, [&] { benchmark::DoNotOptimize(a.sum()); });
  });
  add("dispatch/normal_", [](benchmark::State& state) {
    Tensor a = ones({16}, options());
    time_host(state, [&] { a.normal_(); });
  });
  add("dispatch/empty", [](benchmark::State& state) {
    time_host(state, [&] { benchmark::DoNotOptimize(empty({16}, options())); });
  });
  add("dispatch/view", [](benchmark::State& state) {
    const Tensor a = ones({16}, options());
    time_host(state, [&] { benchmark::DoNotOptimize(a.view({4, 4})); });
  });
  add("dispatch/select", [](benchmark::State& state) {
    const Tensor a = ones({16, 4}, options());
    time_host(state, [&] { benchmark::DoNotOptimize(a.select(0, 1)); });
  });
  add("dispatch/mm_64", [](benchmark::State& state) {
    const Tensor a = ones({64, 64}, options());
    const Tensor b = ones({64, 64}, options());
    time_host(state, [&] { benchmark::DoNotOptimize(a.mm(b)); });
  });
  add("dispatch/item", [](benchmark::State& state) {
    const Tensor a = ones({}, options());
    time_host(state, [&] { benchmark::DoNotOptimize(a.item<float>()); });
  });
}

}  // namespace gantry::benchmarks
