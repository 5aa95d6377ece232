#include "collectives/algorithms/message.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

__global__ void __launch_bounds__(kThreads + kSignallingThreads, 1)
    send_kernel(const __grid_constant__ Message plan) {
  CudaBlock<kThreads, kSignallingThreads> block;
  send_message(block, plan);
}

__global__ void __launch_bounds__(kThreads + kSignallingThreads, 1)
    receive_kernel(const __grid_constant__ Message plan) {
  CudaBlock<kThreads, kSignallingThreads> block;
  receive_message(block, plan);
}

}  // namespace

void send(void* stream, const Message& plan) {
  kernels::cuda::launch("send", stream, kConnectionBlocks, kThreads + kSignallingThreads, 0,
                        send_kernel, plan);
}

void receive(void* stream, const Message& plan) {
  kernels::cuda::launch("receive", stream, kConnectionBlocks, kThreads + kSignallingThreads, 0,
                        receive_kernel, plan);
}

void preload_message() {
  preload_kernel(send_kernel);
  preload_kernel(receive_kernel);
}

}  // namespace gantry::protocol::cuda
