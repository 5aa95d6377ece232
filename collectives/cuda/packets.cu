#include "collectives/algorithms/packets.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"
#include "collectives/cuda/packet_batch.cuh"

namespace gantry::protocol::cuda {

namespace {

template <class T, int Batch>
__global__ void __launch_bounds__(kThreads, 1)
    packets_kernel(const __grid_constant__ PacketExchange plan) {
  CudaBlock<0> block;
  protocol::exchange_packets<T, Batch>(block, plan);
}

template <class T>
constexpr auto kernel_for(int ranks) {
  return ranks <= kFewRanks ? packets_kernel<T, kFewRanks> : packets_kernel<T, kManyRanks>;
}

}  // namespace

void packets(void* stream, const PacketExchange& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    kernels::cuda::launch("packets", stream, blocks, packet_threads(plan.bytes / 8 / blocks), 0,
                          kernel_for<T>(plan.group.size), plan);
  });
}

void preload_packets() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(kernel_for<T>(kFewRanks));
    preload_kernel(kernel_for<T>(kManyRanks));
  });
}

}  // namespace gantry::protocol::cuda
