// Reductions over every dim of shapes of many kinds; peer_torch.py has the same rows.
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {

namespace {

using Call = std::function<void(const Tensor&, int)>;

const std::vector<std::pair<const char*, Call>>& operations() {
  static const std::vector<std::pair<const char*, Call>> all{
      {"sum", [](const Tensor& x, int d) { benchmark::DoNotOptimize(x.sum(d)); }},
      {"amax", [](const Tensor& x, int d) { benchmark::DoNotOptimize(x.amax(d)); }},
      {"argmax", [](const Tensor& x, int d) { benchmark::DoNotOptimize(x.argmax(d)); }},
      {"var", [](const Tensor& x, int d) { benchmark::DoNotOptimize(var(x, d)); }},
      {"var_mean",
       [](const Tensor& x, int d) { benchmark::DoNotOptimize(var_mean(x, {.dims = d})); }},
      {"logsumexp", [](const Tensor& x, int d) { benchmark::DoNotOptimize(x.logsumexp(d)); }},
  };
  return all;
}

}  // namespace

void register_reductions() {
  std::vector<Shape> shapes{{16384, 4096},   {64, 1000000},  {1000000, 64},
                            {128, 768, 512}, {300, 5000, 6}, {513, 1031, 63},
                            {20000000},      {32, 4099},     {256, 256}};
  if (platform() == Platform::simulated) shapes = {{64, 1000}, {30, 20, 6}};
  for (const auto& [name, call] : operations()) {
    for (const Shape& shape : shapes) {
      for (int dim = 0; dim < shape.size(); ++dim) {
        for (const DType dtype : {f32, bf16}) {
          const std::string row =
              fmt::format("reduce/{}/{}/{}/{}", name, fmt::join(shape.begin(), shape.end(), "x"),
                          dim, dtype == f32 ? "f32" : "bf16");
          add(row, [=, call = call](benchmark::State& state) {
            const Tensor x = randn(shape, {.device = Device::cuda(0)}).to(dtype);
            time_completion(state, 10, [&] { call(x, dim); });
          });
        }
      }
    }
  }
}

}  // namespace gantry::benchmarks
