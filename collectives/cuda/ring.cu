#include "collectives/algorithms/ring.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(kThreads + kSignallingThreads, 1)
    ring_kernel(const __grid_constant__ Ring plan) {
  CudaBlock<kThreads, kSignallingThreads> block;
  protocol::ring<T>(block, plan);
}

}  // namespace

void ring(void* stream, const Ring& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch("ring", stream, blocks, kThreads + kSignallingThreads, 0, ring_kernel<T>,
                          plan);
  });
}

void preload_ring() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(ring_kernel<T>);
  });
}

}  // namespace gantry::protocol::cuda
