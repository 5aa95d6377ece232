#pragma once

#include <string_view>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>

#include "kernels/nary.hpp"

namespace gantry {

// A ReduceOp as the fold kernel takes it.
struct Folding {
  kernels::NaryOp op;
  double divisor;
};

// The fold that computes `op` over `count` inputs of `dtype`.
// Throws: DTypeError, prefixed with `where`, if the op is not defined for the dtype.
Folding folding(ReduceOp op, DType dtype, int count, std::string_view where);

}  // namespace gantry
