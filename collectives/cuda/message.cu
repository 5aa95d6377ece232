#include "collectives/algorithms/message.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol {

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

void kernel::send::enqueue(void* stream, const Message& plan, int blocks) {
  kernels::cuda::launch("send", stream, blocks, kThreads + kSignallingThreads, 0, send_kernel,
                        plan);
}

void kernel::receive::enqueue(void* stream, const Message& plan, int blocks) {
  kernels::cuda::launch("receive", stream, blocks, kThreads + kSignallingThreads, 0, receive_kernel,
                        plan);
}

void kernel::send::preload() { cuda::preload_kernel(send_kernel); }
void kernel::receive::preload() { cuda::preload_kernel(receive_kernel); }

}  // namespace gantry::protocol
