#pragma once

#include "kernels/layout/copy.hpp"

// The kernels of copy.hpp on the calling thread.
namespace gantry::kernels::host {

void copy(const TensorRef& out, const TensorRef& in);
// copy() between two dtypes of which one does not compute.
void cast(TensorRef out, TensorRef in);
void fill(const TensorRef& out, const Scalar& value);
void arange(const TensorRef& out, const Scalar& start, const Scalar& step, std::int64_t first);
void triangle(const TensorRef& out, const TensorRef& in, bool lower, std::int64_t diagonal);

}  // namespace gantry::kernels::host
