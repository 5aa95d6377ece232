#include "collectives/algorithms/relay.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(kThreads, 1) relay_kernel(const __grid_constant__ Relay plan) {
  CudaBlock<> block;
  protocol::relay<T>(block, plan);
}

}  // namespace

void relay(void* stream, const Relay& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch("relay", stream, blocks, kThreads, 0, relay_kernel<T>, plan);
  });
}

void preload_relay() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(relay_kernel<T>);
  });
}

}  // namespace gantry::protocol::cuda
