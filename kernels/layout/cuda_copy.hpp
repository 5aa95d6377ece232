#pragma once

#include "kernels/layout/copy.hpp"

// The kernels of copy.hpp on a cudaStream_t of the current device.
namespace gantry::kernels::cuda {

void copy(void* stream, const TensorRef& out, const TensorRef& in);
// copy() between two dtypes of which one does not compute.
void cast(void* stream, TensorRef out, TensorRef in);
void fill(void* stream, const TensorRef& out, const Scalar& value);
void arange(void* stream, const TensorRef& out, const Scalar& start, const Scalar& step,
            std::int64_t first);
void triangle(void* stream, const TensorRef& out, const TensorRef& in, bool lower,
              std::int64_t diagonal);

}  // namespace gantry::kernels::cuda
