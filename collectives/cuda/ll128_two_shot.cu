#include "collectives/algorithms/ll128_two_shot.inl"
#include "collectives/cuda/ll_launch.cuh"

namespace gantry::protocol::cuda {

namespace {

template <class T, int Batch>
__global__ void __launch_bounds__(kThreads, 1)
    ll128_two_shot_kernel(const __grid_constant__ Ll128TwoShot plan) {
  CudaBlock<0> block;
  ll128_two_shot<T, Batch>(block, plan);
}

}  // namespace

void ll128_two_shot(void* stream, const Ll128TwoShot& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr auto kernel = ll128_two_shot_kernel<T, kMoreRanks>;
    kernels::cuda::launch("ll128_two_shot", stream, blocks,
                          ll_threads<Ll128>(plan.slice_lines, blocks), 0, kernel, plan);
  });
}

void preload_ll128_two_shot() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(ll128_two_shot_kernel<T, kMoreRanks>);
  });
}

}  // namespace gantry::protocol::cuda
