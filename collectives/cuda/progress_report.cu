#include "collectives/algorithms/progress_report.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

namespace {

__global__ void progress_report_kernel(const __grid_constant__ ProgressReport plan) {
  CudaBlock<1> block;
  protocol::report_progress(block, plan);
}

}  // namespace

void report_progress(void* stream, const ProgressReport& plan) {
  kernels::cuda::launch("progress_report", stream, 1, 1, 0, progress_report_kernel, plan);
}

void preload_progress_report() { preload_kernel(progress_report_kernel); }

}  // namespace gantry::protocol::cuda
