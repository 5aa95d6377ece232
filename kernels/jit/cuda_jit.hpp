// Programs of jit::elementwise on GPUs.
#pragma once

#include <string>

#include <gantry/streams/stream.hpp>

#include "kernels/jit/program.hpp"

namespace gantry::kernels::cuda {

// The kernels of a program that is loaded on one device; CUfunction.
struct JitProgram {
  void* dense = nullptr;
  void* strided = nullptr;
};

// The compiled program of a function, from this process, from a file or from NVRTC. It stays
// loaded. Throws: NotSupported without NVRTC, CompileError, CudaError.
[[nodiscard]] JitProgram jit_program(int device, const jit::Signature& signature,
                                     const std::string& source, const jit::Specialization& types);
// Launches it on `stream` of the current device.
void launch_jit(const Stream& stream, const JitProgram& program, const jit::Specialization& types,
                const jit::Parameters& parameters);

}  // namespace gantry::kernels::cuda
