#include "collectives/cuda/staged.cuh"

namespace gantry::protocol::kernel {

void two_shot::enqueue(void* stream, const StagedPlan& plan, int blocks) {
  cuda::enqueue_staged<2>("two_shot", stream, plan, blocks);
}
void two_shot::preload() { cuda::preload_staged<2>(); }

}  // namespace gantry::protocol::kernel
