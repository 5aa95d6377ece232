#include <cuda_profiler_api.h>

#include "device/cuda/cuda_check.hpp"
#include "device/profiler_calls.hpp"

namespace gantry {

void switch_cuda_profilers(bool record) {
  if (record) {
    GANTRY_CUDA_CHECK(cudaProfilerStart(), "starting the profiler");
  } else {
    GANTRY_CUDA_CHECK(cudaProfilerStop(), "stopping the profiler");
  }
}

}  // namespace gantry
