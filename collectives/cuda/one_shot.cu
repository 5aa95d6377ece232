#include "collectives/algorithms/one_shot.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    one_shot_kernel(const __grid_constant__ OneShot plan) {
  CudaBlock<> block;
  protocol::one_shot<T>(block, plan);
}

}  // namespace

void one_shot(void* stream, const OneShot& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch("one_shot", stream, blocks, kThreads, 0, one_shot_kernel<T>, plan);
  });
}

void preload_one_shot() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(one_shot_kernel<T>);
  });
}

}  // namespace gantry::protocol::cuda
