#pragma once

#include <concepts>
#include <string_view>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/tensor/shape_ops.hpp>
#include <gantry/tensor/tensor.hpp>

/// Sums of products over several dims.
///
/// DTypes: all operands of a contraction have the same one, unless a function says otherwise. f16
/// and bf16 accumulate in f32. f32 uses TF32 only after set_allow_tf32(). Integers wrap. Bool is a
/// DTypeError.
/// Device/stream: current stream of the operands' device; the host does not block. All operands are
/// on that device.
/// Throws: ShapeError, DTypeError, DeviceMismatchError, InvalidArgument.
/// @since 0.3
namespace gantry {

/// Einstein summation: products of elements with equal subscripts, summed over the subscripts that
/// the output lacks.
///
/// `equation` has the subscripts of each operand, and optionally "->" and those of the output:
/// "ij,jk->ik". A subscript is a letter. A letter that occurs twice in one operand selects the
/// diagonal. "..." stands for the other dims of an operand, which broadcast. Without "->" the
/// output has the dims of the ellipsis, then the letters that occur once, A to Z before a to z.
/// Spaces are ignored. A size of 1 broadcasts to the size that the subscript has elsewhere.
///
/// Operands are multiplied from left to right, each pair as a batch of matrix products. A dim that
/// only one operand has is summed before the product.
/// Aliasing: one operand without a sum gives a view; otherwise the result is new memory. Throws:
/// InvalidArgument for a malformed equation.
/// Example: `const Tensor y = einsum("ij,jk->ik", ones({2, 3}), ones({3, 4}));`
[[nodiscard]] GANTRY_API Tensor einsum(std::string_view equation,
                                       const std::vector<Tensor>& operands);
template <TensorRange R>
[[nodiscard]] Tensor einsum(std::string_view equation, const R& operands) {
  return einsum(equation, detail::listed(operands));
}
/// einsum with operands as separate arguments: `einsum("ij,jk", a, b)`.
template <std::same_as<Tensor>... More>
[[nodiscard]] Tensor einsum(std::string_view equation, const Tensor& first, const More&... more) {
  return einsum(equation, std::vector<Tensor>{first, more...});
}

/// Sum of products over pairs of dims: dim dims_a[i] of `a` with dim dims_b[i] of `b`. The result
/// has the other dims of `a`, then those of `b`. A size of 1 broadcasts. Throws: InvalidArgument
/// for lists of different lengths or a repeated dim, IndexError.
[[nodiscard]] GANTRY_API Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a,
                                          const Dims& dims_b);
/// tensordot over the last `dims` dims of `a` and the first of `b`, in order. Throws:
/// InvalidArgument unless dims is at least 0 and at most the dims of both.
[[nodiscard]] GANTRY_API Tensor tensordot(const Tensor& a, const Tensor& b, int dims = 2);

/// Sum of products over the last dims. Shapes: [A…, k] [B…, k] → [A…, B…]; a 0-dim operand
/// multiplies the other.
[[nodiscard]] GANTRY_API Tensor inner(const Tensor& a, const Tensor& b);
/// Same as dot: the dtypes are real.
[[nodiscard]] GANTRY_API Tensor vdot(const Tensor& a, const Tensor& b);
/// Kronecker product: block (i, j, …) is a[i, j, …] * b. Shapes: at most 4 dims; the shorter shape
/// gets leading dims of size 1. DTypes: promoted, bool included.
[[nodiscard]] GANTRY_API Tensor kron(const Tensor& a, const Tensor& b);
/// beta * self + alpha * outer(a, b). `self` is broadcast to [m, n]. If beta is 0, it is not read.
/// DTypes: promoted.
[[nodiscard]] GANTRY_API Tensor addr(const Tensor& self, const Tensor& a, const Tensor& b,
                                     const Scalar& beta = 1, const Scalar& alpha = 1);
GANTRY_API Tensor& addr_out(Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b,
                            const Scalar& beta = 1, const Scalar& alpha = 1);
/// Product of matrices, multiplied in the order that needs the fewest multiplications. Source: the
/// dynamic program for matrix chains. Shapes: all 2-D. DTypes: floating.
[[nodiscard]] GANTRY_API Tensor chain_matmul(const std::vector<Tensor>& matrices);
template <TensorRange R>
[[nodiscard]] Tensor chain_matmul(const R& matrices) {
  return chain_matmul(detail::listed(matrices));
}

/// Permits products of f32 tensors to round their operands to TF32 (10 bits of fraction) on GPUs
/// that have it. The default is false. It affects later calls of all threads. The CPU and simulated
/// devices always compute in f32.
GANTRY_API void set_allow_tf32(bool allowed);
/// The last value given to set_allow_tf32(); false at first.
[[nodiscard]] GANTRY_API bool allow_tf32();

}  // namespace gantry
