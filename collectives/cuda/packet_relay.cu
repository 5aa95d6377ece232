#include "collectives/algorithms/packet_relay.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"
#include "collectives/cuda/packet_batch.cuh"

namespace gantry::protocol::cuda {

namespace {

template <class T, int Batch>
__global__ void __launch_bounds__(kThreads, 1)
    packet_relay_kernel(const __grid_constant__ PacketRelay plan) {
  CudaBlock<0> block;
  protocol::relay_packets<T, Batch>(block, plan);
}

template <class T>
constexpr auto kernel_for(int ranks) {
  return ranks <= kFewRanks ? packet_relay_kernel<T, kFewRanks>
                            : packet_relay_kernel<T, kManyRanks>;
}

}  // namespace

void packet_relay(void* stream, const PacketRelay& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch("packet_relay", stream, blocks, packet_threads(plan.part_words / blocks),
                          0, kernel_for<T>(plan.group.size), plan);
  });
}

void preload_packet_relay() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(kernel_for<T>(kFewRanks));
    preload_kernel(kernel_for<T>(kManyRanks));
  });
}

}  // namespace gantry::protocol::cuda
