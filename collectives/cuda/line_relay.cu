#include "collectives/algorithms/line_relay.inl"
#include "collectives/cuda/wires.cuh"

namespace gantry::protocol::cuda {

namespace {

template <class T, int Batch>
__global__ void __launch_bounds__(kThreads, 1)
    line_relay_kernel(const __grid_constant__ LineRelay plan) {
  CudaBlock<0> block;
  relay_lines<T, Batch>(block, plan);
}

}  // namespace

void line_relay(void* stream, const LineRelay& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr auto kernel = line_relay_kernel<T, kMoreRanks>;
    kernels::cuda::launch("line_relay", stream, blocks,
                          wire_threads<Lines>(plan.part_lines, blocks), 0, kernel, plan);
  });
}

void preload_line_relay() {
  for_each_element([](auto tag) {
    using T = typename decltype(tag)::type;
    preload_kernel(line_relay_kernel<T, kMoreRanks>);
  });
}

}  // namespace gantry::protocol::cuda
