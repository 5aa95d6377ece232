#include <cub/device/device_select.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordering/native_type.cuh"
#include "kernels/ordering/binning_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

void select(void* stream, const FirstsPlan& plan, void* storage, std::size_t& bytes) {
  dispatch_native(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const cudaError_t status = cub::DeviceSelect::Unique(
        storage, bytes, static_cast<const T*>(plan.in), static_cast<T*>(plan.out), plan.count,
        plan.n, static_cast<cudaStream_t>(stream));
    if (status == cudaSuccess) return;
    (void)cudaGetLastError();
    throw_launch_error("first_of_runs", stream, status);
  });
}

}  // namespace

std::size_t first_of_runs_bytes(const FirstsPlan& plan) {
  std::size_t bytes = 0;
  select(nullptr, plan, nullptr, bytes);
  return bytes;
}

void first_of_runs(void* stream, const FirstsPlan& plan, void* scratch) {
  std::size_t bytes = first_of_runs_bytes(plan);
  select(stream, plan, scratch, bytes);
}

}  // namespace gantry::kernels::cuda
