#include "collectives/algorithms/exchange.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    exchange_kernel(const __grid_constant__ Exchange plan) {
  CudaBlock<> block;
  protocol::exchange<T>(block, plan);
}

}  // namespace

void exchange(void* stream, const Exchange& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch("exchange", stream, blocks, kThreads, 0, exchange_kernel<T>, plan);
  });
}

void preload_exchange() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(exchange_kernel<T>);
  });
}

}  // namespace gantry::protocol::cuda
