#include "collectives/algorithms/packets.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    packets_kernel(const __grid_constant__ Exchange plan) {
  CudaBlock block;
  protocol::exchange_packets<T>(block, plan);
}

}  // namespace

void packets(void* stream, const Exchange& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch("packets", stream, blocks, kThreads, 0, packets_kernel<T>, plan);
  });
}

void preload_packets() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(packets_kernel<T>);
  });
}

}  // namespace gantry::protocol::cuda
