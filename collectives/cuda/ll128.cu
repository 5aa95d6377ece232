#include "collectives/cuda/ll_one_shot.cuh"

namespace gantry::protocol::cuda {

void ll128(void* stream, const LlOneShot& plan, int blocks) {
  launch_ll_one_shot<Ll128>("ll128", stream, plan, blocks);
}

void preload_ll128() { preload_ll_one_shot<Ll128>(); }

}  // namespace gantry::protocol::cuda
