#include "collectives/algorithms/peer_signal.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

__global__ void peer_signal_kernel(const __grid_constant__ PeerSignal plan) {
  CudaBlock<1> block;
  protocol::pass_signal(block, plan);
}

}  // namespace

void peer_signal(void* stream, const PeerSignal& plan) {
  kernels::cuda::launch("peer_signal", stream, 1, 1, 0, peer_signal_kernel, plan);
}

void preload_peer_signal() { preload_kernel(peer_signal_kernel); }

}  // namespace gantry::protocol::cuda
