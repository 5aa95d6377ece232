#pragma once

#include "kernels/elementwise/elementwise.hpp"

namespace gantry::kernels::host {

// out = op(in), each element by the function itself.
void unary_loop(UnaryOp op, const TensorRef& out, const TensorRef& in);

}  // namespace gantry::kernels::host
