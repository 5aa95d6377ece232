#pragma once

#include <cstdint>

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/linalg/gemm.hpp"

namespace gantry::kernels {

// A batch of matrices in a layout that BLAS can read. Rows (columns, if transposed) are dense, and
// `leading` elements apart.
struct GemmMatrix {
  const void* data = nullptr;
  bool is_transposed = false;
  std::int64_t leading = 0;
  std::int64_t batch_stride = 0;
};

// The parameters of out = alpha * a b + beta * out, with a contiguous `out`. The epilogue adds a
// row to each of its rows, then applies relu. A POD.
struct GemmPlan {
  DType dtype = DType::f32;
  std::int64_t batch = 0;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  GemmMatrix a;
  GemmMatrix b;
  void* out = nullptr;
  double alpha = 1;
  double beta = 0;
  bool allow_tf32 = false;
  const void* bias = nullptr;  // n elements, or null
  bool has_relu = false;

  bool has_epilogue() const { return bias != nullptr || has_relu; }
};

namespace host {
// gemm() of gemm.hpp on the calling thread.
void gemm(const TensorRef& out, const TensorRef& a, const TensorRef& b, const TensorRef& c,
          double alpha, double beta, Activation activation);
}  // namespace host

namespace cuda {
// Returns false, without an effect, if cuBLASLt has no algorithm with the epilogue. Precondition: a
// plan with an epilogue has one matrix.
[[nodiscard]] bool gemm(const Stream& stream, const GemmPlan& plan);
}  // namespace cuda

}  // namespace gantry::kernels
