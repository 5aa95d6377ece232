// Kernels of operations through staging.
#pragma once

#include "collectives/algorithms/staged.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

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
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(staged_kernel<T, Shots, StagedPlan>);
  });
}

}  // namespace gantry::protocol::cuda
