// Kernels of one thread.
#include "collectives/algorithms/peer_signal.inl"
#include "collectives/algorithms/progress_report.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

__device__ void run(CudaBlock<1>& block, const PeerSignal& plan) { pass_signal(block, plan); }
__device__ void run(CudaBlock<1>& block, const ProgressReport& plan) {
  protocol::report_progress(block, plan);
}

template <class Plan>
__global__ void single_thread_kernel(const __grid_constant__ Plan plan) {
  CudaBlock<1> block;
  run(block, plan);
}

template <class Plan>
void launch_single_thread(const char* name, void* stream, const Plan& plan) {
  kernels::cuda::launch(name, stream, 1, 1, 0, single_thread_kernel<Plan>, plan);
}

}  // namespace

void peer_signal(void* stream, const PeerSignal& plan) {
  launch_single_thread("peer_signal", stream, plan);
}
void report_progress(void* stream, const ProgressReport& plan) {
  launch_single_thread("progress_report", stream, plan);
}

void preload_peer_signal() { preload_kernel(single_thread_kernel<PeerSignal>); }
void preload_progress_report() { preload_kernel(single_thread_kernel<ProgressReport>); }

}  // namespace gantry::protocol::cuda
