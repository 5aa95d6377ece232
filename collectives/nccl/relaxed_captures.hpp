#pragma once

namespace gantry {

// Lets this thread make calls of CUDA that would invalidate captures of other threads. It does
// nothing in a build without CUDA.
void relax_captures() noexcept;

}  // namespace gantry
