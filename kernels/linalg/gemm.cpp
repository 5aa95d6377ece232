#include "kernels/linalg/gemm.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "kernels/dispatch.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/elementwise/special.hpp"
#include "kernels/input.hpp"
#include "kernels/layout/copy.hpp"
#include "kernels/linalg/gemm_plan.hpp"
#include "kernels/scratch.hpp"

namespace gantry::kernels {

namespace {

std::atomic<bool> tf32_is_allowed{false};

bool same_layout(const TensorRef& a, const TensorRef& b) {
  return a.data == b.data && std::equal(a.strides, a.strides + a.ndim, b.strides);
}

// out = beta * c.
void scale(const Target& target, const TensorRef& out, const TensorRef& c, double beta) {
  if (beta == 0) {
    fill(target, out, 0);
  } else if (beta == 1) {
    if (!same_layout(out, c)) copy(target, out, c);
  } else {
    binary(target, BinaryOp::mul, out, c, Scalar(beta));
  }
}

// Describes `tensor` [batch, rows, columns]. Returns false if BLAS cannot read its layout.
bool describe(const TensorRef& tensor, GemmMatrix& matrix) {
  const std::int64_t rows = tensor.sizes[1];
  const std::int64_t columns = tensor.sizes[2];
  const std::int64_t row_stride = tensor.strides[1];
  const std::int64_t column_stride = tensor.strides[2];
  matrix.data = tensor.data;
  matrix.batch_stride = tensor.sizes[0] == 1 ? 0 : tensor.strides[0];
  if (matrix.batch_stride < 0) return false;
  if ((column_stride == 1 || columns == 1) && (rows == 1 || row_stride >= columns)) {
    matrix.is_transposed = false;
    matrix.leading = rows == 1 ? columns : row_stride;
    return true;
  }
  if ((row_stride == 1 || rows == 1) && (columns == 1 || column_stride >= rows)) {
    matrix.is_transposed = true;
    matrix.leading = columns == 1 ? rows : column_stride;
    return true;
  }
  return false;
}

// Describes `tensor`, or a dense copy in `scratch` if BLAS cannot read its layout.
GemmMatrix prepare(const Target& target, const TensorRef& tensor, Scratch& scratch) {
  GemmMatrix matrix;
  if (describe(tensor, matrix)) return matrix;
  TensorRef dense = tensor;
  dense.strides[2] = 1;
  dense.strides[1] = tensor.sizes[2];
  dense.strides[0] = tensor.sizes[1] * tensor.sizes[2];
  scratch = Scratch(target, static_cast<std::size_t>(tensor.numel()) * element_size(tensor.dtype));
  dense.data = scratch.data();
  copy(target, dense, tensor);
  describe(dense, matrix);
  return matrix;
}

void activate(const Target& target, const TensorRef& out, Activation activation) {
  switch (activation) {
    case Activation::none:
      return;
    case Activation::relu:
      return unary(target, UnaryOp::relu, out, out);
    case Activation::gelu_tanh:
      return special(target, SpecialOp::gelu_tanh, out, out);
  }
}

// True if cuBLASLt can add `c` as the row of an epilogue: equal rows in memory of their own, for
// one matrix of several rows and columns.
bool is_bias(const TensorRef& c, const TensorRef& out, double beta) {
  return beta == 1 && out.sizes[1] > 1 && out.sizes[2] > 1 && c.strides[1] == 0 &&
         c.data != out.data;
}

// The row of `c` as an epilogue reads it, or a copy in `scratch`.
const void* bias_row(const Target& target, const TensorRef& c, Scratch& scratch) {
  constexpr std::uintptr_t kAlignment = 16;
  if (c.strides[2] == 1 && reinterpret_cast<std::uintptr_t>(c.data) % kAlignment == 0) {
    return c.data;
  }
  TensorRef row = c;
  row.sizes[1] = 1;
  scratch = Scratch(target, static_cast<std::size_t>(c.sizes[2]) * element_size(c.dtype));
  TensorRef dense = row;
  dense.data = scratch.data();
  dense.strides[2] = 1;
  copy(target, dense, row);
  return dense.data;
}

// The product with as much of its epilogue as one kernel takes. Returns the activation that is left
// to do.
//
// Note [Epilogues]
// cuBLASLt's epilogues compute in f32, as the product does, and round once. Its gelu is accurate
// only to 16-bit types, so gelu runs as a separate kernel.
Activation multiply(const Stream& stream, GemmPlan plan, const TensorRef& out, const TensorRef& c,
                    Activation activation) {
  const Target target = Target::on(stream);
  Scratch row;
  if (plan.dtype != DType::f64 && plan.batch == 1) {
    GemmPlan fused = plan;
    fused.has_relu = activation == Activation::relu;
    if (is_bias(c, out, plan.beta)) {
      fused.bias = bias_row(target, c, row);
      fused.beta = 0;
    }
    if (fused.has_epilogue()) {
      if (fused.beta != 0 && !same_layout(out, c)) copy(target, out, c);
      if (cuda::gemm(stream, fused)) return fused.has_relu ? Activation::none : activation;
    }
  }
  if (plan.beta != 0 && !same_layout(out, c)) copy(target, out, c);
  if (!cuda::gemm(stream, plan)) detail::throw_undefined("gemm", 0, plan.dtype);
  return activation;
}

void gemm_on_gpu(const Target& target, const TensorRef& out, const TensorRef& a, const TensorRef& b,
                 const TensorRef& c, double alpha, double beta, Activation activation) {
  Scratch dense_a;
  Scratch dense_b;
  GemmPlan plan;
  plan.dtype = out.dtype;
  plan.batch = out.sizes[0];
  plan.m = out.sizes[1];
  plan.n = out.sizes[2];
  plan.k = a.sizes[2];
  plan.a = prepare(target, a, dense_a);
  plan.b = prepare(target, b, dense_b);
  plan.out = out.data;
  plan.alpha = alpha;
  plan.beta = beta;
  plan.allow_tf32 = allow_tf32();
  activate(target, out, multiply(target.stream(), plan, out, c, activation));
}

}  // namespace

void set_allow_tf32(bool allowed) { tf32_is_allowed = allowed; }
bool allow_tf32() { return tf32_is_allowed; }

void gemm(const Target& target, const TensorRef& out, const TensorRef& a, const TensorRef& b,
          const TensorRef& c, double alpha, double beta, Activation activation) {
  if (out.numel() == 0) return;
  if (a.sizes[2] == 0 || alpha == 0) {
    scale(target, out, c, beta);
    activate(target, out, activation);
    return;
  }
  const TensorRef* addend = beta == 0 ? nullptr : &c;
  submit(
      "matmul", target, {&out, &a, &b, addend},
      [out, a, b, c, alpha, beta, activation] {
        host::gemm(out, a, b, c, alpha, beta, activation);
      },
      [&](void* /*stream*/) { gemm_on_gpu(target, out, a, b, c, alpha, beta, activation); });
}

}  // namespace gantry::kernels
