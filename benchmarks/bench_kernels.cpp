#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {

namespace {

// One kernel on tensors of `bytes` bytes: a line, or a matrix of 8192 or 512 columns.
void kernel(benchmark::State& state, const std::string& op, DType dtype, std::int64_t bytes) {
  const TensorOptions options{.dtype = dtype, .device = Device::cuda(0)};
  const std::int64_t count = bytes / static_cast<std::int64_t>(element_size(dtype));
  const std::int64_t columns = bytes > 1 << 20 ? 8192 : 512;
  const std::int64_t rows = count / columns;
  const Tensor line = ones({count}, options);
  const Tensor matrix = line.view({rows, columns});
  const Tensor target = empty({count}, options);
  const auto time = [&](const auto& call) { time_completion(state, 20, call); };
  if (op == "add") time([&] { benchmark::DoNotOptimize(line.add(line)); });
  if (op == "axpy") time([&] { benchmark::DoNotOptimize(line.add(target, 2)); });
  // The same functions, compiled at run time.
  if (op == "jit_add" || op == "jit_axpy") {
    const auto function = jit::elementwise(
        op == "jit_add" ? "template <typename T> T f(T x, T y) { return x + y; }"
                        : "template <typename T> T f(T x, T y, T a) { return x + a * y; }");
    if (op == "jit_add") time([&] { benchmark::DoNotOptimize(function(line, line)); });
    if (op == "jit_axpy") time([&] { benchmark::DoNotOptimize(function(line, target, 2)); });
  }
  if (op == "exp") time([&] { benchmark::DoNotOptimize(line.exp()); });
  if (op == "fill") time([&] { target.fill_(2.0); });
  if (op == "sum") time([&] { benchmark::DoNotOptimize(line.sum()); });
  if (op == "max") time([&] { benchmark::DoNotOptimize(line.max()); });
  if (op == "sum_dim0") time([&] { benchmark::DoNotOptimize(matrix.sum(0)); });
  if (op == "sum_dim1") time([&] { benchmark::DoNotOptimize(matrix.sum(1)); });
  if (op == "argmax") time([&] { benchmark::DoNotOptimize(line.argmax()); });
  if (op == "cumsum") time([&] { benchmark::DoNotOptimize(line.cumsum(0)); });
  if (op == "cumsum_dim0") time([&] { benchmark::DoNotOptimize(matrix.cumsum(0)); });
  if (op == "softmax") time([&] { benchmark::DoNotOptimize(matrix.softmax(1)); });
  if (op == "uniform") time([&] { target.uniform_(); });
  if (op == "normal") time([&] { target.normal_(); });
  if (op == "bias_add") {
    const Tensor bias = ones({columns}, options);
    time([&] { benchmark::DoNotOptimize(matrix.add(bias)); });
  }
  if (op == "transpose") {
    const Tensor turned = target.view({columns, rows});
    time([&] { turned.copy_(matrix.t(), {.non_blocking = true}); });
  }
  if (op == "index_rows") {
    const Tensor index = randperm(rows, {.device = Device::cuda(0)});
    time([&] { benchmark::DoNotOptimize(matrix.index_select(0, index)); });
  }
}

}  // namespace

void register_kernels() {
  std::vector<std::int64_t> sizes{1 << 20, 256 << 20, 1 << 30};
  if (platform() == Platform::simulated) sizes = {1 << 20, 2 << 20};
  for (const char* op : {"add", "jit_add", "axpy", "jit_axpy", "exp", "fill", "sum", "max",
                         "sum_dim0", "sum_dim1", "argmax", "cumsum", "cumsum_dim0", "softmax",
                         "uniform", "normal", "bias_add", "transpose", "index_rows"}) {
    for (const DType dtype : {f32, bf16}) {
      for (const std::int64_t bytes : sizes) {
        const std::string what = std::string(op) + (dtype == f32 ? "/" : "_bf16/");
        add("kernel/" + what + std::to_string(bytes),
            [=](benchmark::State& state) { kernel(state, op, dtype, bytes); });
      }
    }
  }
}

}  // namespace gantry::benchmarks
