#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {

// Products of square matrices.
void register_matmul() {
  const bool is_simulated = platform() == Platform::simulated;
  for (const DType dtype : {f32, bf16}) {
    for (const std::int64_t size : {100, 128, 512, 1000, 1024, 2048, 4096, 8192}) {
      if (is_simulated && size > 512) continue;
      add((dtype == f32 ? "matmul/" : "matmul_bf16/") + std::to_string(size),
          [=](benchmark::State& state) {
            const TensorOptions options{.dtype = dtype, .device = Device::cuda(0)};
            const Tensor a = ones({size, size}, options);
            const Tensor b = ones({size, size}, options);
            time_completion(state, size > 2048 ? 5 : 20,
                            [&] { benchmark::DoNotOptimize(a.matmul(b)); });
          });
    }
  }
}

}  // namespace gantry::benchmarks
