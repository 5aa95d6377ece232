#include "collectives/algorithms/chain.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(kThreads + kTellers, 1)
    chain_kernel(const __grid_constant__ Chain plan) {
  CudaBlock<kThreads, kTellers> block;
  protocol::chain<T>(block, plan);
}

}  // namespace

void chain(void* stream, const Chain& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch("chain", stream, blocks, kThreads + kTellers, 0, chain_kernel<T>, plan);
  });
}

void preload_chain() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(chain_kernel<T>);
  });
}

}  // namespace gantry::protocol::cuda
