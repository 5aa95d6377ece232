#include "collectives/algorithms/packets.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

// A small block is there sooner.
constexpr int kFewThreads = 128;

template <class T, int Threads>
__global__ void __launch_bounds__(Threads, 1)
    packets_kernel(const __grid_constant__ PacketExchange plan) {
  CudaBlock<Threads> block;
  protocol::exchange_packets<T>(block, plan);
}

template <class T, int Threads>
void launch_packets(void* stream, const PacketExchange& plan, int blocks) {
  kernels::cuda::launch("packets", stream, blocks, Threads, 0, packets_kernel<T, Threads>, plan);
}

}  // namespace

void packets(void* stream, const PacketExchange& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool small = plan.bytes <= blocks * kFewThreads * 8;
    (small ? launch_packets<T, kFewThreads> : launch_packets<T, kThreads>)(stream, plan, blocks);
  });
}

void preload_packets() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(packets_kernel<T, kFewThreads>);
    preload_kernel(packets_kernel<T, kThreads>);
  });
}

}  // namespace gantry::protocol::cuda
