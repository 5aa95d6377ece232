#include <gantry/kernels/blas_handle.hpp>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/streams/stream.hpp>

#include "device/checked_device_index.hpp"
#include "kernels/linalg/cuda_blas_handle.hpp"

namespace gantry {

void* current_blas_handle(Device device) {
  const Device on = Device::cuda(checked_device_index(device, "current_blas_handle"));
  if (platform() != Platform::cuda) {
    throw NotSupported(
        "current_blas_handle: expected a GPU, but got a simulated device, which cuBLAS does not "
        "know",
        on.str());
  }
  const DeviceGuard guard(on);
  return kernels::cuda::blas_handle(Stream::current(on));
}

}  // namespace gantry
