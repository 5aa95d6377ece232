// Launches that return when their kernel is done.
#pragma once

#include <gantry/device/native_handles.hpp>

namespace gantry {

/// True if CUDA_LAUNCH_BLOCKING or GANTRY_LAUNCH_BLOCKING says so now. Throws: InvalidArgument.
[[nodiscard]] bool reads_launch_blocking();

/// reads_launch_blocking() at the first call of the process.
[[nodiscard]] bool launches_block();

/// Makes CUDA block launches, too, if GANTRY_LAUNCH_BLOCKING says so. Call it before CUDA is
/// initialised, which reads its own variable then.
void pass_launch_blocking_to_cuda();

/// In a handler: rethrows the exception. The text of an IndexError or CudaError then ends with the
/// function of gantry that the program called, and the line of that call.
[[noreturn]] void rethrow_with_call_place();

/// Behind a launch on `stream` that may raise a fault: while launches block, raises it now. Does
/// nothing in a capture.
void raise_fault_of_launch(const NativeStream& stream);

}  // namespace gantry
