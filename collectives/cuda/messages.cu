// The kernels of sends and receives.
#include "collectives/algorithms/message_group.inl"

#include <algorithm>

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

template <int Most>
__global__ void __launch_bounds__(kThreads + kSignallingThreads, 1)
    messages_kernel(const __grid_constant__ MessageList<Most> plan) {
  CudaBlock<kThreads, kSignallingThreads> block;
  MessageGroupTask<CudaBlock<kThreads, kSignallingThreads>, MessageList<Most>> task(block, plan);
  while (!task.is_done()) task.advance();
}

template <int Most>
void enqueue_list(void* stream, const MessagePlan& plan, int blocks) {
  MessageList<Most> list;
  list.group = plan.group;
  list.sends = plan.sends;
  list.count = static_cast<std::int32_t>(plan.messages.size());
  std::copy(plan.messages.begin(), plan.messages.end(), list.messages);
  kernels::cuda::launch("messages", stream, blocks, kThreads + kSignallingThreads, 0,
                        messages_kernel<Most>, list);
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

void kernel::messages::enqueue(void* stream, const MessagePlan& plan, int blocks) {
  if (plan.messages.size() <= kFewMessages) {
    enqueue_list<kFewMessages>(stream, plan, blocks);
  } else {
    enqueue_list<kMostMessages>(stream, plan, blocks);
  }
}

void kernel::send::preload() { cuda::preload_kernel(send_kernel); }
void kernel::receive::preload() { cuda::preload_kernel(receive_kernel); }
void kernel::messages::preload() {
  cuda::preload_kernel(messages_kernel<kFewMessages>);
  cuda::preload_kernel(messages_kernel<kMostMessages>);
}

}  // namespace gantry::protocol
