// The switch of CUDA's profilers.
#pragma once

namespace gantry {

/// Lets profilers record or pause. For the CUDA platform. Throws: CudaError.
void switch_cuda_profilers(bool record);

}  // namespace gantry
