// Takes the place of the CUDA driver in a build without CUDA.
#include <gantry/core/error.hpp>

#include "device/cuda/cuda_platform.hpp"

namespace gantry {

namespace {

constexpr const char* kReason = "this build of gantry has no CUDA (GANTRY_CUDA=OFF)";

}  // namespace

CudaProbe probe_cuda() { return {.count = 0, .problem = kReason}; }

std::unique_ptr<Driver> make_cuda_driver(int) { throw NotSupported(kReason); }

bool synchronizes_with_default(NativeStream) noexcept { return false; }

}  // namespace gantry
