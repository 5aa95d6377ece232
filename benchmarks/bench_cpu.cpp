// Kernels on CPU tensors, on one thread. peer_cpu.py measures the same operations of PyTorch.

#include <functional>

#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {

namespace {

// The time of one call. The CPU's calls return when they are done.
template <class Call>
void time_calls(benchmark::State& state, int calls, Call call) {
  call();
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(seconds.count() / calls);
  }
}

void add_cpu(const std::string& op, int calls,
             const std::function<void(const Tensor&, const Tensor&)>& call,
             const Shape& sizes = {2048, 2048}) {
  benchmark::RegisterBenchmark(("cpu/" + op).c_str(),
                               [=](benchmark::State& state) {
                                 const Tensor a = rand(sizes);
                                 const Tensor b = rand(sizes);
                                 time_calls(state, calls, [&] { call(a, b); });
                               })
      ->UseManualTime()
      ->Iterations(9)
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

void register_cpu() {
  const auto keep = [](const Tensor& result) { benchmark::DoNotOptimize(result.data()); };
  using T = const Tensor&;
  add_cpu("add", 2, [=](T a, T b) { keep(a + b); });
  add_cpu("add_", 2, [=](T a, T b) { a.add_(b, 0.0); });
  add_cpu("bias_add", 2, [=](T a, T b) { keep(a + b[0]); });
  add_cpu("compare", 2, [=](T a, T b) { keep(a > b); });
  add_cpu("to_bf16", 2, [=](T a, T) { keep(a.bfloat16()); });
  add_cpu("exp", 1, [=](T a, T) { keep(a.exp()); });
  add_cpu("log", 1, [=](T a, T) { keep(a.log()); });
  add_cpu("sin", 1, [=](T a, T) { keep(a.sin()); });
  add_cpu("tanh", 1, [=](T a, T) { keep(a.tanh()); });
  add_cpu("sigmoid", 1, [=](T a, T) { keep(a.sigmoid()); });
  add_cpu("gelu", 1, [=](T a, T) { keep(a.gelu()); });
  add_cpu("sum", 2, [=](T a, T) { keep(a.sum()); });
  add_cpu("sum_dim0", 2, [=](T a, T) { keep(a.sum(0)); });
  add_cpu("sum_dim1", 2, [=](T a, T) { keep(a.sum(1)); });
  add_cpu("max", 2, [=](T a, T) { keep(a.max()); });
  add_cpu("argmax", 1, [=](T a, T) { keep(a.argmax(1)); });
  add_cpu("cumsum", 1, [=](T a, T) { keep(a.view(-1).cumsum(0)); });
  add_cpu("softmax", 1, [=](T a, T) { keep(a.softmax(1)); });
  add_cpu("transpose", 1, [=](T a, T) { keep(a.t().contiguous()); });
  add_cpu("uniform", 1, [=](T a, T) { a.uniform_(); });
  add_cpu("normal", 1, [=](T a, T) { a.normal_(); });
  add_cpu("matmul", 1, [=](T a, T b) { keep(a.mm(b)); }, {1024, 1024});
  add_cpu("small_add", 1000, [=](T a, T b) { keep(a + b); }, {16});
  add_cpu("small_add_", 1000, [=](T a, T b) { a.add_(b, 0.0); }, {16});
  add_cpu("small_sum", 1000, [=](T a, T) { keep(a.sum()); }, {16});
}

}  // namespace gantry::benchmarks
