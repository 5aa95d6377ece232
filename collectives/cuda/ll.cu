#include "collectives/cuda/flagged.cuh"

namespace gantry::protocol::kernel {

void ll::enqueue(void* stream, const FlaggedPlan& plan, int blocks) {
  cuda::enqueue_flagged<Ll, 1>("ll", stream, plan, blocks);
}
void ll::preload() { cuda::preload_flagged<Ll, 1>(); }

}  // namespace gantry::protocol::kernel
