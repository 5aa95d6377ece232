#include "kernels/cuda/launch.cuh"
#include "kernels/fibre_plan.hpp"
#include "kernels/impl/scan.inl"

namespace gantry::kernels::cuda {

namespace {

// Fewest fibres that occupy a GPU with one thread each.
constexpr std::int64_t kManyFibres = 4096;
constexpr int kTile = 1024;

// One thread per fibre.
template <class In>
__global__ void __launch_bounds__(kThreads)
    scan_fibres(const __grid_constant__ FibrePlan plan, bool product) {
  using Out = ScanOut<In>;
  for (std::int64_t fibre = first_index(); fibre < plan.count; fibre += index_step()) {
    scan_fibre(product, static_cast<Out*>(plan.out.data) + plan.out.outer.offset(fibre),
               plan.out.stride, static_cast<const In*>(plan.in.data) + plan.in.outer.offset(fibre),
               plan.in.stride, plan.length);
  }
}

// One block per fibre. The order is left to right, so one thread accumulates. The others move the
// elements through shared memory.
template <class In>
__global__ void __launch_bounds__(kThreads)
    scan_long_fibres(const __grid_constant__ FibrePlan plan, bool product) {
  using Out = ScanOut<In>;
  using Acc = ScanAccumulator<In>;
  __shared__ Acc tile[kTile];
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t fibre = blockIdx.x; fibre < plan.count; fibre += gridDim.x) {
    const In* in = static_cast<const In*>(plan.in.data) + plan.in.outer.offset(fibre);
    Out* out = static_cast<Out*>(plan.out.data) + plan.out.outer.offset(fibre);
    Acc running = 0;
    for (std::int64_t first = 0; first < plan.length; first += kTile) {
      const std::int64_t rest = plan.length - first;
      const int count = static_cast<int>(rest < kTile ? rest : kTile);
      for (int i = thread; i < count; i += kThreads) {
        tile[i] = static_cast<Acc>(in[(first + i) * plan.in.stride]);
      }
      __syncthreads();
      if (thread == 0) {
        running = first == 0 ? tile[0] : scan_step(product, running, tile[0]);
        tile[0] = running;
#pragma unroll 8
        for (int i = 1; i < count; ++i) {
          running = scan_step(product, running, tile[i]);
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

void scan(void* stream, bool product, const FibrePlan& plan) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if (plan.count >= kManyFibres || plan.length < kThreads) {
      launch("scan_fibres", stream, blocks_for(plan.count), kThreads, 0, scan_fibres<In>, plan,
             product);
    } else {
      launch("scan_long_fibres", stream, blocks_for(plan.count * kThreads), kThreads, 0,
             scan_long_fibres<In>, plan, product);
    }
  });
}

}  // namespace gantry::kernels::cuda
