#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "kernels/cuda/linalg/cublaslt.hpp"
#include "kernels/linalg/gemm_plan.hpp"

namespace gantry::kernels::cuda {

// Throws CublasError unless `status` is a success.
void check_gemm(cublasStatus_t status, const char* call, const Stream& stream);

// The properties of a product that determine its descriptors and its algorithm.
struct GemmProblemKey {
  GemmProblemKey(const GemmPlan& plan, int device);
  friend bool operator==(const GemmProblemKey&, const GemmProblemKey&) = default;

  int device;
  DType dtype;
  bool allow_tf32;
  bool has_bias;
  bool has_relu;
  bool is_a_transposed;
  bool is_b_transposed;
  std::int64_t batch, m, n, k;
  std::int64_t a_leading, b_leading;
  std::int64_t a_batch_stride, b_batch_stride;
  std::uint32_t a_alignment, b_alignment, out_alignment;  // bytes, at most 256
};

struct GemmProblemHash {
  std::size_t operator()(const GemmProblemKey& key) const noexcept;
};

// An owner of a cuBLASLt object.
template <class Handle, cublasStatus_t (*CublasLt::*destroy)(Handle)>
class CublasLtObject {
 public:
  CublasLtObject() = default;
  ~CublasLtObject() {
    if (handle_ != nullptr) (void)(cublaslt().*destroy)(handle_);
  }
  CublasLtObject(const CublasLtObject&) = delete;
  CublasLtObject& operator=(const CublasLtObject&) = delete;

  Handle* out() { return &handle_; }
  operator Handle() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

// A product as cuBLASLt needs it: descriptors, layouts and the algorithm of its heuristic. The
// addresses of the operands come with each run.
//
// cuBLASLt is column-major: the problem is the transposed one, out^T = b^T a^T.
// Thread safety: any thread.
class GemmProblem {
 public:
  // Throws: CublasError.
  GemmProblem(cublasLtHandle_t handle, const Stream& stream, const GemmPlan& plan);

  // False if cuBLASLt has no algorithm with the epilogue.
  [[nodiscard]] bool has_algorithm() const { return has_algorithm_; }
  // Submits the product. Precondition: `plan` has the key of the constructor's plan.
  // Device/stream: the workspace is memory of `stream`. Throws: CublasError, OutOfMemoryError.
  void run(cublasLtHandle_t handle, const Stream& stream, const GemmPlan& plan);

 private:
  using Operation = CublasLtObject<cublasLtMatmulDesc_t, &CublasLt::matmul_desc_destroy>;
  using Layout = CublasLtObject<cublasLtMatrixLayout_t, &CublasLt::matrix_layout_destroy>;

  static void describe(Layout& layout, cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                       const GemmMatrix& matrix, std::int64_t batch, const Stream& stream);
  template <class T>
  void set(cublasLtMatmulDescAttributes_t which, const T& value, const Stream& stream);
  void choose(cublasLtHandle_t handle, const Stream& stream, const GemmPlan& plan);

  Operation operation_;
  Layout a_;
  Layout b_;
  Layout out_;
  bool has_algorithm_ = false;
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;
  std::mutex bias_;  // held while operation_ names the bias of one call
};

}  // namespace gantry::kernels::cuda
