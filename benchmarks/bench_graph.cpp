#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {
namespace {

constexpr int kChain = 100;

// A chain of kernels so small that their launches take longer than they do.
void run_chain(const Tensor& tensor) {
  for (int i = 0; i < kChain; ++i) tensor.add_(1);
}

}  // namespace

void register_graph() {
  static const auto options = [] { return TensorOptions{.dtype = f32, .device = Device::cuda(0)}; };
  add("graph/chain100/eager", [](benchmark::State& state) {
    const Tensor tensor = zeros({1024}, options());
    time_completion(state, 10, [&] { run_chain(tensor); });
  });
  add("graph/chain100/replay", [](benchmark::State& state) {
    const Tensor tensor = zeros({1024}, options());
    Graph graph;
    {
      const GraphCapture capture(graph);
      run_chain(tensor);
    }
    time_completion(state, 10, [&] { graph.replay(); });
  });
}

}  // namespace gantry::benchmarks
