#pragma once

#include <gantry/kernels/activation.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Batched matrix product: out = activation(alpha * a b + beta * c). Uses cuBLASLt on a GPU, Eigen
// elsewhere.
//
// Shapes: a [B, M, K], b [B, K, N], c and out [B, M, N]. K = 0 gives beta * c. `out` is contiguous;
// the others have any strides, and batch strides may be 0. An operand whose matrices are neither
// row-major nor column-major is copied first.
// DTypes: one floating dtype. f16 and bf16 accumulate in f32. f32 uses TF32 only if allowed.
// On a GPU, cuBLASLt adds a c of equal rows with beta 1, and applies relu, in its own kernel: for
// one matrix, except of f64. Aliasing: c may be out. If beta is 0, c is not read and its data may
// be null.
void gemm(const Target& target, const TensorRef& out, const TensorRef& a, const TensorRef& b,
          const TensorRef& c, double alpha, double beta, Activation activation = Activation::none);

// Permission for f32 products on GPUs to use TF32, for calls from now on. Initially false.
void set_allow_tf32(bool allowed);
[[nodiscard]] bool allow_tf32();

}  // namespace gantry::kernels
