#pragma once

#include <string_view>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>

#include "kernels/peers/nary.hpp"

namespace gantry {

// The kernel operation and the divisor of a ReduceOp.
struct Reduction {
  kernels::NaryOp op;
  double divisor;
};

// Returns the reduction that computes `op` over `count` inputs of `dtype`.
// Throws: DTypeError, prefixed with `where`, if the op is not defined for the dtype.
Reduction reduction_for(ReduceOp op, DType dtype, int count, std::string_view where);

}  // namespace gantry
