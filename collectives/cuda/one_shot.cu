#include "collectives/cuda/staged.cuh"

namespace gantry::protocol::kernel {

void one_shot::enqueue(void* stream, const StagedPlan& plan, int blocks) {
  cuda::enqueue_staged<1>("one_shot", stream, plan, blocks);
}
void one_shot::preload() { cuda::preload_staged<1>(); }

void uneven_one_shot::enqueue(void* stream, const UnevenPlan& plan, int blocks) {
  kernels::cuda::launch("uneven_one_shot", stream, blocks, kThreads, 0,
                        cuda::staged_kernel<Moved, 1, UnevenPlan>, plan);
}
void uneven_one_shot::preload() { cuda::preload_kernel(cuda::staged_kernel<Moved, 1, UnevenPlan>); }

}  // namespace gantry::protocol::kernel
