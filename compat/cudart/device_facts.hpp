// The facts of a simulated device, as the CUDA runtime tells them.
#pragma once

#include <cuda_runtime_api.h>

namespace gantry::cudart_api {

// Throws: Refusal if there is no such device.
int checked_device(int device);
// Properties that the driver does not know are zero: the device does not have them.
cudaDeviceProp runtime_properties(int device);
// As runtime_properties().
int runtime_attribute(cudaDeviceAttr which, int device);

}  // namespace gantry::cudart_api
