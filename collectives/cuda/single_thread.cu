// Kernels of one thread.
#include "collectives/algorithms/single_thread.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol {

namespace {

__device__ void run(CudaBlock<1>& block, const PeerSignal& plan) { pass_signal(block, plan); }
__device__ void run(CudaBlock<1>& block, const ProgressReport& plan) {
  protocol::report_progress(block, plan);
}

__device__ void run(CudaBlock<1>& block, const AbortReport& plan) { report_abort(block, plan); }

template <class Plan>
__global__ void single_thread_kernel(const __grid_constant__ Plan plan) {
  CudaBlock<1> block;
  run(block, plan);
}

template <class Plan>
void enqueue_single_thread(const char* name, void* stream, const Plan& plan, int blocks) {
  kernels::cuda::launch(name, stream, blocks, 1, 0, single_thread_kernel<Plan>, plan);
}

}  // namespace

void kernel::peer_signal::enqueue(void* stream, const PeerSignal& plan, int blocks) {
  enqueue_single_thread("peer_signal", stream, plan, blocks);
}
void kernel::progress_report::enqueue(void* stream, const ProgressReport& plan, int blocks) {
  enqueue_single_thread("progress_report", stream, plan, blocks);
}

void kernel::abort_report::enqueue(void* stream, const AbortReport& plan, int blocks) {
  enqueue_single_thread("abort_report", stream, plan, blocks);
}

void kernel::peer_signal::preload() { cuda::preload_kernel(single_thread_kernel<PeerSignal>); }
void kernel::progress_report::preload() {
  cuda::preload_kernel(single_thread_kernel<ProgressReport>);
}
void kernel::abort_report::preload() { cuda::preload_kernel(single_thread_kernel<AbortReport>); }

}  // namespace gantry::protocol
