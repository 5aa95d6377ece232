#pragma once

#include "collectives/algorithms/ll_one_shot.inl"
#include "collectives/cuda/ll_launch.cuh"

namespace gantry::protocol::cuda {

template <class T, template <class> class Proto, int Batch>
__global__ void __launch_bounds__(kThreads, 1)
    ll_one_shot_kernel(const __grid_constant__ LlOneShot plan) {
  CudaBlock<0> block;
  ll_one_shot<T, Proto, Batch>(block, plan);
}

template <class T, template <class> class Proto>
auto ll_one_shot_kernel_for(int ranks) {
  constexpr bool kIsOneWord = Proto<CudaBlock<0>>::kHeld == 1;
  constexpr int kMost = kIsOneWord && !kReduces<T> ? kManyRanks : kMoreRanks;
  if (ranks <= kTwoRanks) return ll_one_shot_kernel<T, Proto, kTwoRanks>;
  if (ranks <= kMoreRanks) return ll_one_shot_kernel<T, Proto, kMoreRanks>;
  return ll_one_shot_kernel<T, Proto, kMost>;
}

template <template <class> class Proto>
void launch_ll_one_shot(const char* name, void* stream, const LlOneShot& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto kernel = ll_one_shot_kernel_for<T, Proto>(plan.group.size);
    constexpr int kUnitBytes = 8 * Proto<CudaBlock<0>>::kUnitWords;
    const int threads = ll_threads<Proto>(plan.bytes / kUnitBytes, blocks);
    kernels::cuda::launch(name, stream, blocks, threads, 0, kernel, plan);
  });
}

template <template <class> class Proto>
void preload_ll_one_shot() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    for (const int ranks : {kTwoRanks, kMoreRanks, kManyRanks}) {
      preload_kernel(ll_one_shot_kernel_for<T, Proto>(ranks));
    }
  });
}

}  // namespace gantry::protocol::cuda
