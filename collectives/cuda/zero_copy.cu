#include "collectives/algorithms/zero_copy.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol {

namespace {

// A kernel that reduces nothing only signals.
template <class T>
inline constexpr int kZeroCopyThreads = kReduces<T> ? kThreads : 64;

template <class T>
__global__ void __launch_bounds__(kZeroCopyThreads<T>, 1)
    zero_copy_kernel(const __grid_constant__ ZeroCopy plan) {
  CudaBlock<kZeroCopyThreads<T>> block;
  protocol::zero_copy<T>(block, plan);
}

}  // namespace

void kernel::zero_copy::enqueue(void* stream, const ZeroCopy& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch("zero_copy", stream, blocks, kZeroCopyThreads<T>, 0, zero_copy_kernel<T>,
                          plan);
  });
}

void kernel::zero_copy::preload() {
  cuda::for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    cuda::preload_kernel(zero_copy_kernel<T>);
  });
}

}  // namespace gantry::protocol
