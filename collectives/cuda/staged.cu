// The kernels of operations through staging.
#include "collectives/algorithms/staged.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol {

namespace {

template <class T, int Shots, class Plan>
__global__ void __launch_bounds__(kThreads, 1) staged_kernel(const __grid_constant__ Plan plan) {
  CudaBlock<> block;
  staged<T, Shots>(block, plan);
}

template <int Shots>
void enqueue_staged(const char* name, void* stream, const StagedPlan& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch(name, stream, blocks, kThreads, 0, staged_kernel<T, Shots, StagedPlan>,
                          plan);
  });
}

template <int Shots>
void preload_staged() {
  cuda::for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    cuda::preload_kernel(staged_kernel<T, Shots, StagedPlan>);
  });
}

}  // namespace

void kernel::one_shot::enqueue(void* stream, const StagedPlan& plan, int blocks) {
  enqueue_staged<1>("one_shot", stream, plan, blocks);
}
void kernel::two_shot::enqueue(void* stream, const StagedPlan& plan, int blocks) {
  enqueue_staged<2>("two_shot", stream, plan, blocks);
}
void kernel::uneven_one_shot::enqueue(void* stream, const UnevenPlan& plan, int blocks) {
  kernels::cuda::launch("uneven_one_shot", stream, blocks, kThreads, 0,
                        staged_kernel<Moved, 1, UnevenPlan>, plan);
}

void kernel::one_shot::preload() { preload_staged<1>(); }
void kernel::two_shot::preload() { preload_staged<2>(); }
void kernel::uneven_one_shot::preload() {
  cuda::preload_kernel(staged_kernel<Moved, 1, UnevenPlan>);
}

}  // namespace gantry::protocol
