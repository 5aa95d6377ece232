// Elementwise operations on contiguous CPU memory, without the layouts of tensors.
#pragma once

#include <cstdint>

#include "kernels/elementwise/elementwise.hpp"

namespace gantry::kernels {

// binary() on the calling thread for `numel` > 0 contiguous elements of each tensor, all of
// `dtype`. `out` is an input or apart from it. Precondition: is_direct_call(Target::cpu()).
void binary_line(BinaryOp op, DType dtype, std::int64_t numel, void* out, const void* a,
                 const void* b, const Scalar& alpha);

}  // namespace gantry::kernels
