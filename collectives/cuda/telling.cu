#include "collectives/algorithms/telling.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

__global__ void telling_kernel(const __grid_constant__ Telling plan) {
  CudaBlock<1> block;
  protocol::tell(block, plan);
}

}  // namespace

void tell(void* stream, const Telling& plan) {
  kernels::cuda::launch("telling", stream, 1, 1, 0, telling_kernel, plan);
}

void preload_telling() { preload_kernel(telling_kernel); }

}  // namespace gantry::protocol::cuda
