#include "collectives/algorithms/phase.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

// What folds nothing only signals.
template <class T>
inline constexpr int kPhaseThreads = kCombines<T> ? kThreads : 64;

template <class T>
__global__ void __launch_bounds__(kPhaseThreads<T>, 1)
    phase_kernel(const __grid_constant__ Phase plan) {
  CudaBlock<kPhaseThreads<T>> block;
  protocol::phase<T>(block, plan);
}

}  // namespace

void phase(void* stream, const Phase& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch("phase", stream, blocks, kPhaseThreads<T>, 0, phase_kernel<T>, plan);
  });
}

void preload_phase() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(phase_kernel<T>);
  });
}

}  // namespace gantry::protocol::cuda
