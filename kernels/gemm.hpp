#pragma once

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// out = alpha * a b + beta * c, batched: a [B, M, K], b [B, K, N], c and out [B, M, N]; one
// floating dtype; 3-D, any strides for a, b, c (an operand whose matrices are neither row- nor
// column-major is copied first; batch strides may be 0), out contiguous. f16 and bf16 accumulate in
// f32; f32 is plain f32 (no TF32). c is ignored for beta 0 and may then have null data; it may
// equal out. K = 0 gives beta * c. cuBLASLt on the GPU, Eigen on the CPU and the simulator.
void gemm(const Target& target, const TensorRef& out, const TensorRef& a, const TensorRef& b,
          const TensorRef& c, double alpha, double beta);

}  // namespace gantry::kernels
