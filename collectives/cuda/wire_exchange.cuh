#pragma once

#include "collectives/algorithms/wire_exchange.inl"
#include "collectives/cuda/wires.cuh"

namespace gantry::protocol::cuda {

template <class T, template <class> class Wire, int Batch>
__global__ void __launch_bounds__(kThreads, 1)
    wire_exchange_kernel(const __grid_constant__ WireExchange plan) {
  CudaBlock<0> block;
  exchange_over<T, Wire, Batch>(block, plan);
}

template <class T, template <class> class Wire>
auto wire_exchange_kernel_for(int ranks) {
  constexpr bool kIsOneWord = Wire<CudaBlock<0>>::kHeld == 1;
  constexpr int kMost = kIsOneWord && !kCombines<T> ? kManyRanks : kMoreRanks;
  if (ranks <= kTwoRanks) return wire_exchange_kernel<T, Wire, kTwoRanks>;
  if (ranks <= kMoreRanks) return wire_exchange_kernel<T, Wire, kMoreRanks>;
  return wire_exchange_kernel<T, Wire, kMost>;
}

template <template <class> class Wire>
void launch_wire_exchange(const char* name, void* stream, const WireExchange& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto kernel = wire_exchange_kernel_for<T, Wire>(plan.group.size);
    constexpr int kUnitBytes = 8 * Wire<CudaBlock<0>>::kUnitWords;
    const int threads = wire_threads<Wire>(plan.bytes / kUnitBytes, blocks);
    kernels::cuda::launch(name, stream, blocks, threads, 0, kernel, plan);
  });
}

template <template <class> class Wire>
void preload_wire_exchange() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    for (const int ranks : {kTwoRanks, kMoreRanks, kManyRanks}) {
      preload_kernel(wire_exchange_kernel_for<T, Wire>(ranks));
    }
  });
}

}  // namespace gantry::protocol::cuda
