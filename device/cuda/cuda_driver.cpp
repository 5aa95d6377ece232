#include "device/cuda/cuda_driver.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include <gantry/core/log.hpp>
#include <gantry/device/properties.hpp>

#include "device/architectures.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/drivers/cuda_platform.hpp"

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

namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  GANTRY_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device), "reading the capability",
                    device);
  return value;
}

// Kernel launches on such a device fail; memory, copies and streams work, so this is no error yet.
void warn_of_missing_code(DeviceCalls& driver, int device_count) {
  const std::vector<std::string> built = arch_list();
  for (int device = 0; device < device_count; ++device) {
    const int major = attribute(cudaDevAttrComputeCapabilityMajor, device);
    const int minor = attribute(cudaDevAttrComputeCapabilityMinor, device);
    if (has_code_for(built, major, minor)) continue;
    logging::warn(missing_code_text(built, device, driver.properties(device).name, major, minor));
  }
}

}  // namespace

std::unique_ptr<Driver> make_cuda_driver(int device_count) {
  (void)cuda::api();  // a driver that is too old is an error now, not in the middle of some work
  auto made = std::make_unique<CudaDriver>(device_count);
  warn_of_missing_code(*made, device_count);
  return made;
}

}  // namespace gantry
