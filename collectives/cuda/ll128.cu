#include "collectives/cuda/flagged.cuh"

namespace gantry::protocol::kernel {

void ll128::enqueue(void* stream, const FlaggedPlan& plan, int blocks) {
  cuda::enqueue_flagged<Ll128, 1>("ll128", stream, plan, blocks);
}
void ll128::preload() { cuda::preload_flagged<Ll128, 1>(); }

void ll128_two_shot::enqueue(void* stream, const FlaggedPlan& plan, int blocks) {
  cuda::enqueue_flagged<Ll128, 2>("ll128_two_shot", stream, plan, blocks);
}
void ll128_two_shot::preload() { cuda::preload_flagged<Ll128, 2>(); }

}  // namespace gantry::protocol::kernel
