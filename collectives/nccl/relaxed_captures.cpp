#include "collectives/nccl/relaxed_captures.hpp"

#include <cuda_runtime_api.h>

namespace gantry {

void relax_captures() noexcept {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
}

}  // namespace gantry
