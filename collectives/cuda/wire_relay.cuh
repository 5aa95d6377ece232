#pragma once

#include "collectives/algorithms/wire_relay.inl"
#include "collectives/cuda/wires.cuh"

namespace gantry::protocol::cuda {

template <class T, template <class> class Wire, int Batch>
__global__ void __launch_bounds__(kThreads, 1)
    wire_relay_kernel(const __grid_constant__ WireRelay plan) {
  CudaBlock<0> block;
  relay_over<T, Wire, Batch>(block, plan);
}

template <template <class> class Wire>
void launch_wire_relay(const char* name, void* stream, const WireRelay& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto kernel = plan.group.size <= kFewRanks ? wire_relay_kernel<T, Wire, kFewRanks>
                                                     : wire_relay_kernel<T, Wire, kManyRanks>;
    const int threads = wire_threads<Wire>(plan.part_units / blocks);
    kernels::cuda::launch(name, stream, blocks, threads, 0, kernel, plan);
  });
}

template <template <class> class Wire>
void preload_wire_relay() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(wire_relay_kernel<T, Wire, kFewRanks>);
    preload_kernel(wire_relay_kernel<T, Wire, kManyRanks>);
  });
}

}  // namespace gantry::protocol::cuda
