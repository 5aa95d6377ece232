#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <gantry/core/error.hpp>

namespace gantry::kernels::cuda {

[[noreturn]] void throw_launch_error(const char* kernel, void* stream, cudaError_t status) {
  int device = -1;
  (void)cudaGetDevice(&device);
  const std::string where = fmt::format("cuda:{}", device);
  const char* name = cudaGetErrorName(status);
  throw CudaError(fmt::format("Failed launching kernel {} on stream {} of {}: {} ({}): {} "
                              "[cudaLaunchKernelEx]",
                              kernel, fmt::ptr(stream), where, name, static_cast<int>(status),
                              cudaGetErrorString(status)),
                  static_cast<int>(status), name, where);
}

}  // namespace gantry::kernels::cuda
