// PyTorch's side of dispatch, allocation and copies, through its C++ API. Built by peer_torch.py.
// Prints one line "name microseconds" per measurement.

#include <torch/extension.h>

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include "alloc/steps.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void synchronize() {
  for (int i = 0; i < c10::cuda::device_count(); ++i) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(i));
    c10::cuda::device_synchronize();
  }
}

void report(const std::string& name, double seconds) {
  std::printf("%s %.4f\n", name.c_str(), seconds * 1e6);
  std::fflush(stdout);
}

void host(const std::string& name, const std::function<void()>& call) {
  constexpr int kBatch = 200;
  for (int i = 0; i < kBatch; ++i) call();
  synchronize();
  std::vector<double> times;
  for (int round = 0; round < 50; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < kBatch; ++i) call();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count() / kBatch);
    synchronize();
  }
  report(name, median(times));
}

void completion(const std::string& name, int calls, const std::function<void()>& call) {
  for (int i = 0; i < 3; ++i) call();
  synchronize();
  std::vector<double> times;
  for (int round = 0; round < 20; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    synchronize();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count() / calls);
  }
  report(name, median(times));
}

void dispatch() {
  const auto f = torch::dtype(torch::kFloat32).device(torch::kCUDA, 0);
  auto a = torch::ones({16}, f);
  auto b = torch::ones({16}, f);
  auto matrix = torch::ones({16, 4}, f);
  auto square = torch::ones({64, 64}, f);
  auto scalar = torch::ones({}, f);
  host("dispatch/add", [&] { auto c = a.add(b); });
  host("dispatch/add_", [&] { a.add_(b); });
  host("dispatch/fill_", [&] { a.fill_(2.0); });
  host("dispatch/sum", [&] { auto c = a.sum(); });
  host("dispatch/normal_", [&] { a.normal_(); });
  host("dispatch/empty", [&] { auto c = torch::empty({16}, f); });
  host("dispatch/view", [&] { auto c = a.view({4, 4}); });
  host("dispatch/select", [&] { auto c = matrix.select(0, 1); });
  host("dispatch/mm_64", [&] { auto c = square.mm(square); });
  host("dispatch/item", [&] { (void)scalar.item<float>(); });
}

void allocation() {
  auto* allocator = c10::cuda::CUDACachingAllocator::get();
  for (const std::size_t bytes : gantry::benchmarks::pair_sizes()) {
    host("alloc/pair/" + std::to_string(bytes),
         [&] { allocator->raw_delete(allocator->raw_alloc(bytes)); });
  }
  const gantry::benchmarks::LiveSetSteps steps = gantry::benchmarks::live_set_steps();
  std::vector<void*> live(1000);
  std::size_t step = 0;
  for (void*& block : live) block = allocator->raw_alloc(steps.bytes(step++));
  host("alloc/live_set", [&] {
    void*& block = live[steps.victim(step)];
    allocator->raw_delete(block);
    block = allocator->raw_alloc(steps.bytes(step++));
  });
  for (void* block : live) allocator->raw_delete(block);
  const auto pinned = torch::dtype(torch::kUInt8).pinned_memory(true);
  host("alloc/pinned_pair/1048576", [&] { auto t = torch::empty({1 << 20}, pinned); });
}

void copies() {
  const auto f = torch::dtype(torch::kFloat32);
  const auto device = f.device(torch::kCUDA, 0);
  for (const std::int64_t bytes :
       {std::int64_t{4096}, std::int64_t{1} << 20, std::int64_t{256} << 20}) {
    const std::string size = std::to_string(bytes);
    auto here = torch::zeros({bytes / 4}, device);
    auto there = torch::zeros({bytes / 4}, device);
    auto pinned = torch::zeros({bytes / 4}, f.pinned_memory(true));
    auto half = torch::zeros({bytes / 4}, device.dtype(torch::kFloat16));
    completion("copy/h2d_pinned/" + size, 20, [&] { here.copy_(pinned, true); });
    completion("copy/d2h_pinned/" + size, 20, [&] { pinned.copy_(here, true); });
    completion("copy/d2d/" + size, 20, [&] { there.copy_(here, true); });
    if (c10::cuda::device_count() > 1) {
      auto peer = torch::zeros({bytes / 4}, f.device(torch::kCUDA, 1));
      completion("copy/peer/" + size, 20, [&] { peer.copy_(here, true); });
    }
    completion("copy/cast_f32_f16/" + size, 20, [&] { half.copy_(here, true); });
  }
  auto square = torch::zeros({8192, 8192}, device);
  auto target = torch::empty({8192, 8192}, device);
  completion("copy/transposed/8192", 20, [&] { target.copy_(square.t(), true); });
}

// The rows of bench_kernels.cpp.
void kernel(const std::string& op, torch::ScalarType dtype, std::int64_t bytes) {
  const auto options = torch::dtype(dtype).device(torch::kCUDA, 0);
  const std::int64_t count = bytes / static_cast<std::int64_t>(torch::elementSize(dtype));
  const std::int64_t columns = bytes > 1 << 20 ? 8192 : 512;
  const std::int64_t rows = count / columns;
  auto line = torch::ones({count}, options);
  auto matrix = line.view({rows, columns});
  auto target = torch::empty({count}, options);
  const char* type = dtype == torch::kFloat32 ? "/" : "_bf16/";
  const auto time = [&](const std::function<void()>& call) {
    completion("kernel/" + op + type + std::to_string(bytes), 20, call);
  };
  if (op == "add") time([&] { auto c = line.add(line); });
  if (op == "exp") time([&] { auto c = line.exp(); });
  if (op == "fill") time([&] { target.fill_(2.0); });
  if (op == "sum") time([&] { auto c = line.sum(); });
  if (op == "max") time([&] { auto c = line.max(); });
  if (op == "sum_dim0") time([&] { auto c = matrix.sum(0); });
  if (op == "sum_dim1") time([&] { auto c = matrix.sum(1); });
  if (op == "argmax") time([&] { auto c = line.argmax(); });
  if (op == "cumsum") time([&] { auto c = line.cumsum(0); });
  if (op == "cumsum_dim0") time([&] { auto c = matrix.cumsum(0); });
  if (op == "softmax") time([&] { auto c = matrix.softmax(1); });
  if (op == "uniform") time([&] { target.uniform_(); });
  if (op == "normal") time([&] { target.normal_(); });
  if (op == "bias_add") {
    auto bias = torch::ones({columns}, options);
    time([&] { auto c = matrix.add(bias); });
  }
  if (op == "transpose") {
    auto turned = target.view({columns, rows});
    time([&] { turned.copy_(matrix.t(), true); });
  }
  if (op == "index_rows") {
    auto index = torch::randperm(rows, options.dtype(torch::kInt64));
    time([&] { auto c = matrix.index_select(0, index); });
  }
}

void kernels() {
  for (const char* op :
       {"add", "exp", "fill", "sum", "max", "sum_dim0", "sum_dim1", "argmax", "cumsum",
        "cumsum_dim0", "softmax", "uniform", "normal", "bias_add", "transpose", "index_rows"}) {
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
      for (const std::int64_t bytes : {std::int64_t{1} << 20, std::int64_t{256} << 20}) {
        kernel(op, dtype, bytes);
      }
    }
  }
}

void run() {
  torch::NoGradGuard no_grad;
  dispatch();
  allocation();
  copies();
  kernels();
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("run", &run); }
