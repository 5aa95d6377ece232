#include "collectives/algorithms/message.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

__global__ void __launch_bounds__(kThreads + kTellers, 1)
    send_kernel(const __grid_constant__ Message plan) {
  CudaBlock<kThreads, kTellers> block;
  send_message(block, plan);
}

__global__ void __launch_bounds__(kThreads + kTellers, 1)
    receive_kernel(const __grid_constant__ Message plan) {
  CudaBlock<kThreads, kTellers> block;
  receive_message(block, plan);
}

}  // namespace

void send(void* stream, const Message& plan) {
  kernels::cuda::launch("send", stream, kChannelBlocks, kThreads + kTellers, 0, send_kernel, plan);
}

void receive(void* stream, const Message& plan) {
  kernels::cuda::launch("receive", stream, kChannelBlocks, kThreads + kTellers, 0, receive_kernel,
                        plan);
}

void preload_message() {
  preload_kernel(send_kernel);
  preload_kernel(receive_kernel);
}

}  // namespace gantry::protocol::cuda
