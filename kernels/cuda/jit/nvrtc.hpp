// The CUDA compiler as a library.
#pragma once

#include <string>

namespace gantry::kernels::cuda {

// A text that tells one NVRTC from another without loading it, where its file is known; else its
// version. Throws: NotSupported if it has to be loaded and that fails.
[[nodiscard]] std::string nvrtc_identity();

// The options of every program: part of what identifies it.
[[nodiscard]] std::string nvrtc_options();

// Compiles `program`, which includes `source`, for the compute capability `architecture` (90).
// Returns a cubin, or PTX where NVRTC is older than the architecture. Loads NVRTC at the first
// call. Throws: NotSupported; jit::CompileError, which shows NVRTC's message about `what`.
[[nodiscard]] std::string compile_for_gpu(int architecture, const std::string& program,
                                          const std::string& source, const std::string& what);

}  // namespace gantry::kernels::cuda
