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
      for (const std::int64_t bytes :
           {std::int64_t{1} << 20, std::int64_t{256} << 20, std::int64_t{1} << 30}) {
        kernel(op, dtype, bytes);
      }
    }
  }
}

// The rows of bench_selection.cpp.
void selection(const std::string& op, torch::ScalarType dtype, std::int64_t bytes) {
  const auto options = torch::dtype(dtype).device(torch::kCUDA, 0);
  const auto indices = torch::dtype(torch::kInt64).device(torch::kCUDA, 0);
  const std::int64_t count = bytes / static_cast<std::int64_t>(torch::elementSize(dtype));
  const bool is_large = bytes > 1 << 20;
  auto line = torch::rand({count}, options);
  const auto rows_of = [&](std::int64_t columns) { return line.view({count / columns, columns}); };
  const char* type = dtype == torch::kFloat32 ? "/" : "_bf16/";
  const auto time = [&](const std::function<void()>& call) {
    completion("kernel/" + op + type + std::to_string(bytes), is_large ? 5 : 20, call);
  };
  if (op == "sort") time([&] { auto c = line.sort(0); });
  if (op == "argsort") time([&] { auto c = line.argsort(true, 0, false); });
  if (op == "topk") time([&] { auto c = line.topk(64, 0); });
  if (op == "topk_rows") {
    auto rows = rows_of(is_large ? 8192 : 512);
    time([&] { auto c = rows.topk(64, 1); });
  }
  if (op == "median") time([&] { auto c = line.median(); });
  if (op == "unique") {
    auto whole = line.mul(65536).floor();
    time([&] { auto c = at::_unique2(whole); });
  }
  if (op == "masked_select") {
    auto mask = line.lt(0.5);
    time([&] { auto c = line.masked_select(mask); });
  }
  if (op == "nonzero") {
    auto sparse = line.sub(0.5).relu();
    time([&] { auto c = sparse.nonzero(); });
  }
  if (op == "index_put") {
    auto table = torch::zeros({count / 64, 64}, options);
    auto values = rows_of(64);
    auto index = torch::randint(0, count / 64, {count / 64}, indices);
    time([&] { table.index_put_({index}, values, true); });
  }
  if (op == "scatter_add") {
    auto sums = torch::zeros({count / 16}, options);
    auto index = torch::randint(0, count / 16, {count}, indices);
    time([&] { sums.scatter_add_(0, index, line); });
  }
  if (op == "cummax") time([&] { auto c = line.cummax(0); });
  if (op == "searchsorted") {
    auto sequence = std::get<0>(torch::rand({1 << 20}, options).sort(0));
    time([&] { auto c = torch::searchsorted(sequence, line); });
  }
  if (op == "histc") time([&] { auto c = line.histc(100, 0, 1); });
  if (op == "transpose_cast") {
    auto rows = rows_of(is_large ? 8192 : 512);
    auto turned =
        torch::empty({rows.size(1), rows.size(0)},
                     options.dtype(dtype == torch::kFloat32 ? torch::kBFloat16 : torch::kFloat32));
    time([&] { turned.copy_(rows.t(), true); });
  }
  const std::pair<const char*, std::int64_t> softmaxes[] = {
      {"softmax_short", 128}, {"softmax_medium", 4096}, {"softmax_long", 65536}};
  for (const auto& [name, columns] : softmaxes) {
    if (op != name) continue;
    auto rows = rows_of(columns);
    time([&] { auto c = rows.softmax(1); });
  }
}

void selections() {
  struct Case {
    const char* op;
    bool has_bf16;
    std::int64_t most_elements;
  };
  constexpr std::int64_t kAll = std::int64_t{1} << 40;
  constexpr std::int64_t kSorted = std::int64_t{16} << 20;
  const Case cases[] = {
      {"sort", true, kSorted},        {"argsort", false, kSorted},    {"topk", true, kSorted},
      {"topk_rows", true, kSorted},   {"median", true, kSorted},      {"unique", false, kSorted},
      {"masked_select", true, kAll},  {"nonzero", false, kAll},       {"index_put", true, kAll},
      {"scatter_add", false, kAll},   {"cummax", true, kAll},         {"searchsorted", false, kAll},
      {"histc", false, kAll},         {"transpose_cast", true, kAll}, {"softmax_short", true, kAll},
      {"softmax_medium", true, kAll}, {"softmax_long", true, kAll},
  };
  for (const Case& c : cases) {
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
      if (dtype == torch::kBFloat16 && !c.has_bf16) continue;
      const auto size = static_cast<std::int64_t>(torch::elementSize(dtype));
      for (const std::int64_t bytes :
           {std::int64_t{1} << 20, std::min(std::int64_t{256} << 20, c.most_elements * size)}) {
        selection(c.op, dtype, bytes);
      }
    }
  }
}

// The rows of bench_matmul.cpp.
void products() {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    for (const std::int64_t size : {100, 128, 512, 1000, 1024, 2048, 4096, 8192}) {
      auto a = torch::ones({size, size}, torch::dtype(dtype).device(torch::kCUDA, 0));
      auto b = torch::ones_like(a);
      completion((dtype == torch::kFloat32 ? "matmul/" : "matmul_bf16/") + std::to_string(size),
                 size > 2048 ? 5 : 20, [&] { auto c = a.matmul(b); });
    }
  }
}

void run() {
  torch::NoGradGuard no_grad;
  dispatch();
  allocation();
  copies();
  kernels();
  selections();
  products();
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("run", &run); }
