#include "kernels/cuda/launch.cuh"
#include "kernels/impl/cumulate.inl"
#include "kernels/line_plans.hpp"

namespace gantry::kernels::cuda {

namespace {

// Fewer lines than this leave a GPU idle with one thread each.
constexpr std::int64_t kManyLines = 4096;
constexpr int kTile = 1024;

// One thread per line.
template <class In>
__global__ void __launch_bounds__(kThreads)
    cumulate_lines(const __grid_constant__ LinePlan plan, bool product) {
  using Out = CumulateOut<In>;
  for (std::int64_t line = first_index(); line < plan.count; line += index_step()) {
    cumulate_line(product, static_cast<Out*>(plan.out.data) + plan.out.lines.offset(line),
                  plan.out.stride,
                  static_cast<const In*>(plan.in.data) + plan.in.lines.offset(line), plan.in.stride,
                  plan.length);
  }
}

// One block per line. The order is left to right, so one thread adds; the others keep it supplied
// through shared memory.
template <class In>
__global__ void __launch_bounds__(kThreads)
    cumulate_long_lines(const __grid_constant__ LinePlan plan, bool product) {
  using Out = CumulateOut<In>;
  using Acc = CumulateAccumulator<In>;
  __shared__ Acc tile[kTile];
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t line = blockIdx.x; line < plan.count; line += gridDim.x) {
    const In* in = static_cast<const In*>(plan.in.data) + plan.in.lines.offset(line);
    Out* out = static_cast<Out*>(plan.out.data) + plan.out.lines.offset(line);
    Acc running = 0;
    for (std::int64_t first = 0; first < plan.length; first += kTile) {
      const std::int64_t rest = plan.length - first;
      const int count = static_cast<int>(rest < kTile ? rest : kTile);
      for (int i = thread; i < count; i += kThreads) {
        tile[i] = static_cast<Acc>(in[(first + i) * plan.in.stride]);
      }
      __syncthreads();
      if (thread == 0) {
        running = first == 0 ? tile[0] : cumulate_step(product, running, tile[0]);
        tile[0] = running;
#pragma unroll 8
        for (int i = 1; i < count; ++i) {
          running = cumulate_step(product, running, tile[i]);
          tile[i] = running;
        }
      }
      __syncthreads();
      for (int i = thread; i < count; i += kThreads) {
        out[(first + i) * plan.out.stride] = from_accumulator<Out>(tile[i]);
      }
      __syncthreads();
    }
  }
}

}  // namespace

void cumulate(void* stream, bool product, const LinePlan& plan) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if (plan.count >= kManyLines || plan.length < kThreads) {
      launch("cumulate_lines", stream, blocks_for(plan.count), kThreads, 0, cumulate_lines<In>,
             plan, product);
    } else {
      launch("cumulate_long_lines", stream, blocks_for(plan.count * kThreads), kThreads, 0,
             cumulate_long_lines<In>, plan, product);
    }
  });
}

}  // namespace gantry::kernels::cuda
