#include "collectives/algorithms/two_shot.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    two_shot_kernel(const __grid_constant__ TwoShot plan) {
  CudaBlock<> block;
  protocol::two_shot<T>(block, plan);
}

}  // namespace

void two_shot(void* stream, const TwoShot& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch("two_shot", stream, blocks, kThreads, 0, two_shot_kernel<T>, plan);
  });
}

void preload_two_shot() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(two_shot_kernel<T>);
  });
}

}  // namespace gantry::protocol::cuda
