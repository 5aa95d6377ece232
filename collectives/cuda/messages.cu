// The kernels of messages.
#include "collectives/algorithms/messages.inl"

#include <algorithm>

#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol {

namespace {

template <int Most>
__global__ void __launch_bounds__(kThreads + kSignallingThreads, 1)
    messages_kernel(const __grid_constant__ MessageList<Most> plan) {
  CudaBlock<kThreads, kSignallingThreads> block;
  MessagesTask<CudaBlock<kThreads, kSignallingThreads>, MessageList<Most>> task(block, plan);
  while (!task.is_done()) task.advance();
}

template <int Most>
void enqueue_list(void* stream, const MessagePlan& plan, int blocks) {
  MessageList<Most> list;
  list.group = plan.group;
  list.sends = plan.sends;
  list.count = plan.count;
  std::copy(plan.all(), plan.all() + plan.count, list.messages);
  kernels::cuda::launch("messages", stream, blocks, kThreads + kSignallingThreads, 0,
                        messages_kernel<Most>, list);
}

}  // namespace

void kernel::messages::enqueue(void* stream, const MessagePlan& plan, int blocks) {
  if (plan.count == 1) {
    enqueue_list<1>(stream, plan, blocks);
  } else if (plan.count <= kFewMessages) {
    enqueue_list<kFewMessages>(stream, plan, blocks);
  } else {
    enqueue_list<kMostMessages>(stream, plan, blocks);
  }
}

void kernel::messages::preload() {
  cuda::preload_kernel(messages_kernel<1>);
  cuda::preload_kernel(messages_kernel<kFewMessages>);
  cuda::preload_kernel(messages_kernel<kMostMessages>);
}

}  // namespace gantry::protocol
