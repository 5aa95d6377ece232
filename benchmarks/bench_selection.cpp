#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

struct Case {
  const char* op;
  bool has_bf16;
  std::int64_t most_elements;  // of the larger size, if 256 MiB have more
};

// Sorting, selection and indexing. peer_torch.cpp has the same cases.
constexpr std::int64_t kAll = std::int64_t{1} << 40;
constexpr std::int64_t kSorted = 16 * kMiB;
constexpr Case kCases[] = {
    {"sort", true, kSorted},        {"argsort", false, kSorted},    {"topk", true, kSorted},
    {"topk_rows", true, kSorted},   {"median", true, kSorted},      {"unique", false, kSorted},
    {"masked_select", true, kAll},  {"nonzero", false, kAll},       {"index_put", true, kAll},
    {"scatter_add", false, kAll},   {"cummax", true, kAll},         {"searchsorted", false, kAll},
    {"histc", false, kAll},         {"transpose_cast", true, kAll}, {"softmax_short", true, kAll},
    {"softmax_medium", true, kAll}, {"softmax_long", true, kAll},
};

void selection(benchmark::State& state, const std::string& op, DType dtype, std::int64_t count,
               bool is_large) {
  const TensorOptions options{.dtype = dtype, .device = Device::cuda(0)};
  const TensorOptions indices{.dtype = i64, .device = Device::cuda(0)};
  const Tensor line = rand({count}, options);
  const auto rows_of = [&](std::int64_t columns) { return line.view({count / columns, columns}); };
  const auto time = [&](const auto& call) { time_completion(state, is_large ? 5 : 20, call); };
  if (op == "sort") time([&] { benchmark::DoNotOptimize(line.sort(0)); });
  if (op == "argsort") time([&] { benchmark::DoNotOptimize(line.argsort(0, false, true)); });
  if (op == "topk") time([&] { benchmark::DoNotOptimize(line.topk(64, 0)); });
  if (op == "topk_rows") {
    const Tensor rows = rows_of(is_large ? 8192 : 512);
    time([&] { benchmark::DoNotOptimize(rows.topk(64, 1)); });
  }
  if (op == "median") time([&] { benchmark::DoNotOptimize(line.median()); });
  if (op == "unique") {
    const Tensor whole = line.mul(65536).floor();
    time([&] { benchmark::DoNotOptimize(whole.unique()); });
  }
  if (op == "masked_select") {
    const Tensor mask = line.lt(0.5);
    time([&] { benchmark::DoNotOptimize(line.masked_select(mask)); });
  }
  if (op == "nonzero") {
    const Tensor sparse = line.sub(0.5).relu();
    time([&] { benchmark::DoNotOptimize(sparse.nonzero()); });
  }
  if (op == "index_put") {
    const Tensor table = zeros({count / 64, 64}, options);
    const Tensor values = rows_of(64);
    const Tensor index = randint(0, count / 64, {count / 64}, indices);
    time([&] { table.index_put_({index}, values, true); });
  }
  if (op == "scatter_add") {
    const Tensor sums = zeros({count / 16}, options);
    const Tensor index = randint(0, count / 16, {count}, indices);
    time([&] { sums.scatter_add_(0, index, line); });
  }
  if (op == "cummax") time([&] { benchmark::DoNotOptimize(line.cummax(0)); });
  if (op == "searchsorted") {
    const Tensor sequence = rand({kMiB}, options).sort(0).values;
    time([&] { benchmark::DoNotOptimize(searchsorted(sequence, line)); });
  }
  if (op == "histc") time([&] { benchmark::DoNotOptimize(line.histc(100, 0, 1)); });
  if (op == "transpose_cast") {
    const Tensor rows = rows_of(is_large ? 8192 : 512);
    const Tensor turned =
        empty({rows.size(1), rows.size(0)},
              TensorOptions{.dtype = dtype == f32 ? bf16 : f32, .device = Device::cuda(0)});
    time([&] { turned.copy_(rows.t(), {.non_blocking = true}); });
  }
  const std::pair<const char*, std::int64_t> softmaxes[] = {
      {"softmax_short", 128}, {"softmax_medium", 4096}, {"softmax_long", 65536}};
  for (const auto& [name, columns] : softmaxes) {
    if (op != name) continue;
    const Tensor rows = rows_of(columns);
    time([&] { benchmark::DoNotOptimize(rows.softmax(1)); });
  }
}

}  // namespace

void register_selection() {
  const std::int64_t largest = platform() == Platform::simulated ? 2 * kMiB : 256 * kMiB;
  for (const Case& c : kCases) {
    for (const DType dtype : {f32, bf16}) {
      if (dtype == bf16 && !c.has_bf16) continue;
      const auto size = static_cast<std::int64_t>(element_size(dtype));
      for (const std::int64_t bytes : {kMiB, std::min(largest, c.most_elements * size)}) {
        const std::string what = std::string(c.op) + (dtype == f32 ? "/" : "_bf16/");
        add("kernel/" + what + std::to_string(bytes),
            [=, op = std::string(c.op)](benchmark::State& state) {
              selection(state, op, dtype, bytes / size, bytes > kMiB);
            });
      }
    }
  }
}

}  // namespace gantry::benchmarks
