// The order between NCCL's work and other work of the program.
#pragma once

#include <gantry/device/device.hpp>

namespace gantry::nccl_api {

// Makes later work of the program's `stream` wait for what CUDA puts before it. On GPUs CUDA does
// so itself, on simulated devices gantry's library for the CUDA runtime. Without that library the
// order is a driver's. Throws: CudaError if a capture forbids it.
void order_later_work(void* stream, Device device);

}  // namespace gantry::nccl_api
