#include "collectives/algorithms/message_group.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

template <int Most>
__global__ void __launch_bounds__(kThreads + kSignallingThreads, 1)
    messages_kernel(const __grid_constant__ MessageList<Most> plan) {
  CudaBlock<kThreads, kSignallingThreads> block;
  MessageGroupTask<CudaBlock<kThreads, kSignallingThreads>, MessageList<Most>> task(block, plan);
  while (!task.is_done()) task.advance();
}

template <int Most>
void launch_messages(void* stream, const MessageList<Most>& plan) {
  kernels::cuda::launch("messages", stream, static_cast<unsigned>(blocks_of(plan, plan.count)),
                        kThreads + kSignallingThreads, 0, messages_kernel<Most>, plan);
}

}  // namespace

void messages(void* stream, const MessageList<kFewMessages>& plan) {
  launch_messages(stream, plan);
}
void messages(void* stream, const MessageList<kMostMessages>& plan) {
  launch_messages(stream, plan);
}

void preload_message_group() {
  preload_kernel(messages_kernel<kFewMessages>);
  preload_kernel(messages_kernel<kMostMessages>);
}

}  // namespace gantry::protocol::cuda
