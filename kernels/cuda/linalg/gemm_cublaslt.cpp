#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>

#include <gantry/core/error.hpp>

#include "device/cuda/cuda_context.hpp"
#include "kernels/cuda/linalg/cublaslt.hpp"
#include "kernels/linalg/gemm_plan.hpp"
#include "kernels/scratch.hpp"

namespace gantry::kernels::cuda {

namespace {

// The largest workspace of an algorithm.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void check(cublasStatus_t status, const char* call, const Stream& stream) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CublasError(fmt::format("gemm: failed to multiply on stream {} of {}: {} ({}): {} [{}]",
                                stream.id(), stream.device().str(), cublaslt().status_name(status),
                                static_cast<int>(status), cublaslt().status_string(status), call),
                    stream.device().str());
}

// The cuBLASLt handle of the stream's device. Handles are never destroyed, because CUDA may shut
// down before static destructors run.
cublasLtHandle_t handle_of(const Stream& stream) {
  static std::mutex mutex;
  static auto* const handles = new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = (*handles)[stream.device().index];
  if (handle == nullptr) {
    const ::gantry::cuda::RelaxedCaptureScope relaxed;
    check(cublaslt().create(&handle), "cublasLtCreate", stream);
  }
  return handle;
}

struct Types {
  cudaDataType_t data;
  cudaDataType_t scale;
  cublasComputeType_t compute;
};

Types types_of(DType dtype, bool allow_tf32) {
  switch (dtype) {
    case DType::f16:
      return {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::bf16:
      return {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::f32:
      return {CUDA_R_32F, CUDA_R_32F,
              allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
    case DType::f64:
      return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::bool_:
    case DType::u8:
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
      break;
  }
  throw DTypeError(fmt::format("gemm: expected a floating dtype, but got {}", name(dtype)));
}

// An owner of a cuBLASLt object.
template <class Handle, cublasStatus_t (*CublasLt::*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (handle_ != nullptr) (void)(cublaslt().*destroy)(handle_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  Handle* out() { return &handle_; }
  operator Handle() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using MatmulDescription = Owned<cublasLtMatmulDesc_t, &CublasLt::matmul_desc_destroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, &CublasLt::matrix_layout_destroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &CublasLt::matmul_preference_destroy>;

// Describes a row-major matrix to cuBLASLt, as the column-major layout of its transpose.
void describe(MatrixLayout& layout, cudaDataType_t type, std::int64_t columns, std::int64_t rows,
              std::int64_t leading, std::int64_t batch, std::int64_t batch_stride,
              const Stream& stream) {
  check(cublaslt().matrix_layout_create(layout.out(), type, static_cast<std::uint64_t>(columns),
                                        static_cast<std::uint64_t>(rows), leading),
        "cublasLtMatrixLayoutCreate", stream);
  const auto count = static_cast<std::int32_t>(batch);
  check(cublaslt().matrix_layout_set_attribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                               sizeof count),
        "cublasLtMatrixLayoutSetAttribute", stream);
  check(cublaslt().matrix_layout_set_attribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &batch_stride, sizeof batch_stride),
        "cublasLtMatrixLayoutSetAttribute", stream);
}

void describe_operand(MatrixLayout& layout, cudaDataType_t type, const GemmMatrix& matrix,
                      std::int64_t rows, std::int64_t columns, std::int64_t batch,
                      const Stream& stream) {
  describe(layout, type, matrix.is_transposed ? rows : columns,
           matrix.is_transposed ? columns : rows, matrix.leading, batch, matrix.batch_stride,
           stream);
}

// The alignment of an address in bytes, at most 256.
std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  std::uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

// The properties that determine the algorithm.
using ProblemKey = std::tuple<int, DType, bool, std::int64_t, std::int64_t, std::int64_t,
                              std::int64_t, bool, bool, std::int64_t, std::int64_t, std::int64_t,
                              std::int64_t, std::uint32_t, std::uint32_t, std::uint32_t>;

ProblemKey key_of(const GemmPlan& plan, int device) {
  return {device,
          plan.dtype,
          plan.allow_tf32,
          plan.batch,
          plan.m,
          plan.n,
          plan.k,
          plan.a.is_transposed,
          plan.b.is_transposed,
          plan.a.leading,
          plan.b.leading,
          plan.a.batch_stride,
          plan.b.batch_stride,
          alignment_of(plan.a.data),
          alignment_of(plan.b.data),
          alignment_of(plan.out)};
}

struct Choice {
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace_bytes;
};

class Problem {
 public:
  Problem(const Stream& stream, const GemmPlan& plan) : stream_(stream), plan_(plan) {
    const Types types = types_of(plan.dtype, plan.allow_tf32);
    check(cublaslt().matmul_desc_create(operation_.out(), types.compute, types.scale),
          "cublasLtMatmulDescCreate", stream);
    // cuBLASLt computes out^T = b^T a^T, so its first operand is b.
    set_transposed(CUBLASLT_MATMUL_DESC_TRANSA, plan.b.is_transposed);
    set_transposed(CUBLASLT_MATMUL_DESC_TRANSB, plan.a.is_transposed);
    describe_operand(a_, types.data, plan.a, plan.m, plan.k, plan.batch, stream);
    describe_operand(b_, types.data, plan.b, plan.k, plan.n, plan.batch, stream);
    describe(out_, types.data, plan.n, plan.m, plan.n, plan.batch, plan.m * plan.n, stream);
  }

  // The algorithm of cuBLASLt's heuristic, cached per problem.
  Choice choose(cublasLtHandle_t handle) const {
    static std::mutex mutex;
    static auto* const known = new std::map<ProblemKey, Choice>;
    const ProblemKey key = key_of(plan_, stream_.device().index);
    const std::lock_guard lock(mutex);
    if (const auto found = known->find(key); found != known->end()) return found->second;
    Preference preference;
    check(cublaslt().matmul_preference_create(preference.out()), "cublasLtMatmulPreferenceCreate",
          stream_);
    prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspaceBytes});
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(plan_.b.data));
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(plan_.a.data));
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(plan_.out));
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(plan_.out));
    cublasLtMatmulHeuristicResult_t result = {};
    int count = 0;
    check(cublaslt().matmul_algo_get_heuristic(handle, operation_, b_, a_, out_, out_, preference,
                                               1, &result, &count),
          "cublasLtMatmulAlgoGetHeuristic", stream_);
    check(count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : result.state, "cublasLtMatmulAlgoGetHeuristic",
          stream_);
    const Choice choice{result.algo, result.workspaceSize};
    known->emplace(key, choice);
    return choice;
  }

  void run(cublasLtHandle_t handle, const Choice& choice) const {
    Scratch workspace;
    if (choice.workspace_bytes > 0) {
      workspace = Scratch(Target::on(stream_), choice.workspace_bytes);
    }
    const auto alpha = static_cast<float>(plan_.alpha);
    const auto beta = static_cast<float>(plan_.beta);
    const bool is_double = plan_.dtype == DType::f64;
    const void* scale = is_double ? static_cast<const void*>(&plan_.alpha) : &alpha;
    const void* keep = is_double ? static_cast<const void*>(&plan_.beta) : &beta;
    check(cublaslt().matmul(handle, operation_, scale, plan_.b.data, b_, plan_.a.data, a_, keep,
                            plan_.out, out_, plan_.out, out_, &choice.algorithm, workspace.data(),
                            choice.workspace_bytes,
                            static_cast<cudaStream_t>(stream_.native_handle())),
          "cublasLtMatmul", stream_);
  }

 private:
  void set_transposed(cublasLtMatmulDescAttributes_t which, bool is_transposed) {
    const cublasOperation_t operation = is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublaslt().matmul_desc_set_attribute(operation_, which, &operation, sizeof operation),
          "cublasLtMatmulDescSetAttribute", stream_);
  }

  template <class T>
  void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which,
              T value) const {
    check(cublaslt().matmul_preference_set_attribute(preference, which, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute", stream_);
  }

  Stream stream_;
  const GemmPlan& plan_;
  MatmulDescription operation_;
  MatrixLayout a_;
  MatrixLayout b_;
  MatrixLayout out_;
};

}  // namespace

void gemm(const Stream& stream, const GemmPlan& plan) {
  cublasLtHandle_t handle = handle_of(stream);
  // cuBLASLt does not document that its algorithms accept more batches than a grid dimension,
  // 65,535.
  constexpr std::int64_t kMostBatches = 32768;
  const auto bytes = static_cast<std::int64_t>(element_size(plan.dtype));
  for (std::int64_t begin = 0; begin < plan.batch; begin += kMostBatches) {
    GemmPlan part = plan;
    part.batch = std::min(plan.batch - begin, kMostBatches);
    part.a.data = static_cast<const std::byte*>(plan.a.data) + begin * plan.a.batch_stride * bytes;
    part.b.data = static_cast<const std::byte*>(plan.b.data) + begin * plan.b.batch_stride * bytes;
    part.out = static_cast<std::byte*>(plan.out) + begin * plan.m * plan.n * bytes;
    const Problem problem(stream, part);
    problem.run(handle, problem.choose(handle));
  }
}

}  // namespace gantry::kernels::cuda
