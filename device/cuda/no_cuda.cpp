// Takes the place of the CUDA driver in a build without CUDA.
#include <gantry/core/error.hpp>

#include "device/drivers/cuda_platform.hpp"
#include "device/drivers/green_partition.hpp"
#include "device/drivers/profiling.hpp"

namespace gantry {

namespace {

constexpr const char* kReason = "this build of gantry has no CUDA (GANTRY_CUDA=OFF)";

}  // namespace

CudaProbe probe_cuda() { return {.count = 0, .problem = kReason}; }

std::unique_ptr<Driver> make_cuda_driver(int) { throw NotSupported(kReason); }

GreenPartition make_green_partition(int, int) { throw NotSupported(kReason); }
NativeStream make_green_stream(int, const GreenPartition&, int) { throw NotSupported(kReason); }
void destroy_green_partition(const GreenPartition&) noexcept {}

void switch_cuda_profilers(bool) { throw NotSupported(kReason); }

std::string start_device_activity() { return kReason; }
void stop_device_activity() noexcept {}
bool synchronizes_with_default(NativeStream) noexcept { return false; }
bool is_cuda_stream_idle(NativeStream) noexcept { return false; }

bool may_look_at_cuda_stream(NativeStream) noexcept { return true; }

}  // namespace gantry
