#pragma once

#include <optional>

#include <gantry/core/export.hpp>
#include <gantry/kernels/activation.hpp>
#include <gantry/tensor/tensor.hpp>

/// Products of vectors and matrices.
///
/// DTypes: one floating dtype for all operands; there are no 8-bit floats. f16 and bf16 accumulate
/// in f32. f32 uses TF32 only after set_allow_tf32 (contractions.hpp).
/// Device/stream: current stream of the operands' device; the host does not block. All operands are
/// on that device; a 0-dim CPU tensor is no exception.
/// Aliasing: the result is new memory. `op_out` of outputs.hpp writes to an output.
/// Throws: ShapeError, DTypeError, DeviceMismatchError.
/// @since 0.1
namespace gantry {

/// Product of vectors (1-D), matrices (2-D) or batches of matrices, whose leading dims broadcast.
///
/// Shapes: [k] [k] → []; [m, k] [k] → [m]; [k] [k, n] → [n]; [..., m, k] [..., k, n] → [..., m, n].
/// Example: `const Tensor y = matmul(ones({2, 3}, "cuda:0"), ones({3, 4}, "cuda:0"));  // [2, 4]`
[[nodiscard]] GANTRY_API Tensor matmul(const Tensor& a, const Tensor& b);
/// Product of two matrices: [m, k] [k, n] → [m, n].
[[nodiscard]] GANTRY_API Tensor mm(const Tensor& a, const Tensor& b);
/// Products of b pairs of matrices: [b, m, k] [b, k, n] → [b, m, n].
[[nodiscard]] GANTRY_API Tensor bmm(const Tensor& a, const Tensor& b);
/// Product of a matrix and a vector: [m, k] [k] → [m].
[[nodiscard]] GANTRY_API Tensor mv(const Tensor& matrix, const Tensor& vector);
/// Inner product of two vectors: [k] [k] → [].
[[nodiscard]] GANTRY_API Tensor dot(const Tensor& a, const Tensor& b);
/// Outer product of two vectors: [m] [n] → [m, n].
[[nodiscard]] GANTRY_API Tensor outer(const Tensor& a, const Tensor& b);
/// beta * self + alpha * mm(mat1, mat2). `self` is broadcast to [m, n]. If beta is 0, self is not
/// read, so NaN in it has no effect.
[[nodiscard]] GANTRY_API Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                                      const Scalar& beta = 1, const Scalar& alpha = 1);
/// addmm, then `activation` of each element before the result is rounded to its dtype: PyTorch's
/// `_addmm_activation`.
///
/// On a GPU, the product's kernel also adds a vector `self` with beta 1, and applies relu, except
/// for f64. There gelu_tanh is a separate kernel, so f16 and bf16 round twice. Throws: also
/// InvalidArgument for a value that is no Activation.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor addmm_activation(const Tensor& self, const Tensor& mat1,
                                                 const Tensor& mat2, Activation activation,
                                                 const Scalar& beta = 1, const Scalar& alpha = 1);
/// A fully connected layer: activation(input * weight^T + bias). On a GPU, kernels and rounding are
/// those of addmm_activation.
///
/// Shapes: input [..., k], weight [n, k], bias [n] → [..., n].
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor linear(const Tensor& input, const Tensor& weight,
                                       const std::optional<Tensor>& bias = {},
                                       Activation activation = Activation::none);
/// addmm for batches: beta * self + alpha * bmm(batch1, batch2).
[[nodiscard]] GANTRY_API Tensor baddbmm(const Tensor& self, const Tensor& batch1,
                                        const Tensor& batch2, const Scalar& beta = 1,
                                        const Scalar& alpha = 1);
/// addmm for a vector: beta * self + alpha * mv(matrix, vector).
[[nodiscard]] GANTRY_API Tensor addmv(const Tensor& self, const Tensor& matrix,
                                      const Tensor& vector, const Scalar& beta = 1,
                                      const Scalar& alpha = 1);

}  // namespace gantry
