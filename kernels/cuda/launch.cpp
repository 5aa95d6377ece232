#include <cuda_runtime.h>
#include <fmt/format.h>

#include <string>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>

#include "core/env/settings.hpp"
#include "core/stacks/call_place.hpp"
#include "device/architectures.hpp"
#include "device/drivers/launch_blocking.hpp"
#include "device/drivers/memory_reclaim.hpp"
#include "kernels/cuda/overlap_limit.hpp"

namespace gantry::kernels::cuda {

[[noreturn]] void throw_launch_error(const char* kernel, void* stream, cudaError_t status) {
  int device = -1;
  (void)cudaGetDevice(&device);
  const std::string where = fmt::format("cuda:{}", device);
  const char* name = cudaGetErrorName(status);
  std::string remedy;
  if (status == cudaErrorNoKernelImageForDevice) {
    const DeviceProperties& p = device_properties(Device::cuda(device));
    remedy = "; " + missing_code_text(arch_list(), device, p.name, p.major, p.minor);
  }
  // A launch that blocks returns the error of its own kernel, so the caller is the cause.
  std::string call;
  if (launches_block()) call = describe_call_place(capture_call_place()).describe();
  throw CudaError(
      fmt::format("{}: failed to launch the kernel on stream {} of {}: {} ({}): {} "
                  "[cudaLaunchKernelEx]{}{}{}",
                  kernel, fmt::ptr(stream), where, name, static_cast<int>(status),
                  cudaGetErrorString(status), remedy, call.empty() ? "" : ", in ", call),
      static_cast<int>(status), name, where);
}

bool is_worth_repeating(cudaError_t status) noexcept {
  if (status != cudaErrorMemoryAllocation) return false;
  (void)cudaGetLastError();
  int device = -1;
  (void)cudaGetDevice(&device);
  return reclaim_memory(device);
}

namespace {

// True if the code of `kernel`, and with it the code of all other kernels, waits by itself on every
// device.
bool waits_by_itself(const void* kernel) {
  if (!env::kOverlappedLaunches.get() || launches_block()) return false;
  cudaFuncAttributes attributes{};
  int count = 0;
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess ||
      cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  if (attributes.ptxVersion < 90) return false;
  // Another kind of GPU would run other code.
  for (int device = 0; device < count; ++device) {
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) {
      (void)cudaGetLastError();
      return false;
    }
    if (major != attributes.binaryVersion / 10) return false;
  }
  return true;
}

bool overlaps(const void* kernel, const dim3& blocks) {
  if (blocks.x > kMostOverlappedBlocks) return false;
  static const bool kWaits = waits_by_itself(kernel);
  return kWaits;
}

}  // namespace

void launch_untyped(const char* name, void* stream, dim3 blocks, dim3 threads, const void* kernel,
                    void** arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute overlap = {};
  if (overlaps(kernel, blocks)) {
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &overlap;
    config.numAttrs = 1;
  }
  cudaError_t status = cudaLaunchKernelExC(&config, kernel, arguments);
  if (is_worth_repeating(status)) [[unlikely]] {
    status = cudaLaunchKernelExC(&config, kernel, arguments);
  }
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw_launch_error(name, stream, status);
  }
}

}  // namespace gantry::kernels::cuda
