#include "collectives/cuda/ll_one_shot.cuh"

namespace gantry::protocol::cuda {

void ll(void* stream, const LlOneShot& plan, int blocks) {
  launch_ll_one_shot<Ll>("ll", stream, plan, blocks);
}

void preload_ll() { preload_ll_one_shot<Ll>(); }

}  // namespace gantry::protocol::cuda
