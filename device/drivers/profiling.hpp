// The part of the CUDA platform for profilers and for gantry::trace.
#pragma once

#include <string>

namespace gantry {

/// Lets CUDA's profilers record or pause. Throws: CudaError.
void switch_cuda_profilers(bool record);

/// Lets CUPTI record kernels, copies and fills of all GPUs from now on. Returns why it cannot;
/// empty if it does.
[[nodiscard]] std::string start_device_activity();
/// Ends the recording, and adds what was recorded to the trace log, which must be on. Work that is
/// not done yet is missing.
void stop_device_activity() noexcept;

}  // namespace gantry
