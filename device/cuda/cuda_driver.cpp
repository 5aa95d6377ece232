#include "device/cuda/cuda_driver.hpp"

#include <fmt/format.h>

#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_platform.hpp"

namespace gantry {

CudaProbe probe_cuda() {
  CudaProbe probe;
  const cudaError_t status = cudaGetDeviceCount(&probe.count);
  if (status == cudaSuccess) {
    if (probe.count == 0) probe.problem = "the CUDA driver shows no GPU";
    return probe;
  }
  cuda::clear_error();
  probe.count = 0;
  probe.problem = fmt::format("{} ({}): {}", cudaGetErrorName(status), static_cast<int>(status),
                              cudaGetErrorString(status));
  return probe;
}

std::unique_ptr<Driver> make_cuda_driver(int device_count) {
  (void)cuda::api();  // a driver that is too old is an error now, not in the middle of some work
  return std::make_unique<CudaDriver>(device_count);
}

}  // namespace gantry
