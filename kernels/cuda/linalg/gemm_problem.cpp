#include "kernels/cuda/linalg/gemm_problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>

#include "kernels/scratch.hpp"

namespace gantry::kernels::cuda {

namespace {

// The largest workspace of an algorithm.
constexpr std::uint64_t kWorkspaceBytes = std::uint64_t{32} << 20;

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
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::f8e4m3:
    case DType::f8e5m2:
      break;
  }
  throw DTypeError(fmt::format("gemm: expected a floating dtype, but got {}", name(dtype)));
}

// The alignment of an address in bytes, at most 256.
std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  std::uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

cublasLtEpilogue_t epilogue_of(const GemmPlan& plan) {
  if (plan.bias == nullptr)
    return plan.has_relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
  return plan.has_relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
}

// The workspace that algorithms may use. They need it to divide k between blocks, whose sums
// another kernel adds. That costs more than it gains if k is short, and for the fast products of
// 16-bit numbers if their tiles fill the GPU anyway. cuBLASLt's heuristic would still choose it.
std::uint64_t workspace_of(const GemmPlan& plan, Device device) {
  constexpr std::int64_t kTile = 128;
  constexpr std::int64_t kShort = 512;
  const auto tiles_of = [](std::int64_t n) { return (n + kTile - 1) / kTile; };
  const std::int64_t tiles = tiles_of(plan.m) * tiles_of(plan.n) * plan.batch;
  const bool is_full =
      element_size(plan.dtype) == 2 && tiles >= device_properties(device).multiprocessors;
  const bool is_short = plan.k <= kShort && std::min(plan.m, plan.n) >= kTile;
  return is_full || is_short ? 0 : kWorkspaceBytes;
}

using Preference = CublasLtObject<cublasLtMatmulPreference_t, &CublasLt::matmul_preference_destroy>;

}  // namespace

void check_gemm(cublasStatus_t status, const char* call, const Stream& stream) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CublasError(fmt::format("gemm: failed to multiply on stream {} of {}: {} ({}): {} [{}]",
                                stream.id(), stream.device().str(), cublaslt().status_name(status),
                                static_cast<int>(status), cublaslt().status_string(status), call),
                    stream.device().str());
}

GemmProblemKey::GemmProblemKey(const GemmPlan& plan, int device)
    : device(device),
      dtype(plan.dtype),
      allow_tf32(plan.allow_tf32),
      has_bias(plan.bias != nullptr),
      has_relu(plan.has_relu),
      is_a_transposed(plan.a.is_transposed),
      is_b_transposed(plan.b.is_transposed),
      batch(plan.batch),
      m(plan.m),
      n(plan.n),
      k(plan.k),
      a_leading(plan.a.leading),
      b_leading(plan.b.leading),
      a_batch_stride(plan.a.batch_stride),
      b_batch_stride(plan.b.batch_stride),
      a_alignment(alignment_of(plan.a.data)),
      b_alignment(alignment_of(plan.b.data)),
      out_alignment(alignment_of(plan.out)) {}

std::size_t GemmProblemHash::operator()(const GemmProblemKey& key) const noexcept {
  std::uint64_t hash = 0;
  for (const auto part :
       {std::int64_t{key.device}, static_cast<std::int64_t>(key.dtype),
        std::int64_t{key.allow_tf32}, std::int64_t{key.has_bias}, std::int64_t{key.has_relu},
        std::int64_t{key.is_a_transposed}, std::int64_t{key.is_b_transposed}, key.batch, key.m,
        key.n, key.k, key.a_leading, key.b_leading, key.a_batch_stride, key.b_batch_stride,
        std::int64_t{key.a_alignment}, std::int64_t{key.b_alignment},
        std::int64_t{key.out_alignment}}) {
    hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

template <class T>
void GemmProblem::set(cublasLtMatmulDescAttributes_t which, const T& value, const Stream& stream) {
  check_gemm(cublaslt().matmul_desc_set_attribute(operation_, which, &value, sizeof value),
             "cublasLtMatmulDescSetAttribute", stream);
}

// Describes a matrix of `rows` and `columns` to cuBLASLt, as the column-major layout of its
// transpose.
void GemmProblem::describe(Layout& layout, cudaDataType_t type, std::int64_t rows,
                           std::int64_t columns, const GemmMatrix& matrix, std::int64_t batch,
                           const Stream& stream) {
  const auto high = static_cast<std::uint64_t>(matrix.is_transposed ? rows : columns);
  const auto wide = static_cast<std::uint64_t>(matrix.is_transposed ? columns : rows);
  check_gemm(cublaslt().matrix_layout_create(layout.out(), type, high, wide, matrix.leading),
             "cublasLtMatrixLayoutCreate", stream);
  const auto count = static_cast<std::int32_t>(batch);
  check_gemm(cublaslt().matrix_layout_set_attribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                    &count, sizeof count),
             "cublasLtMatrixLayoutSetAttribute", stream);
  check_gemm(
      cublaslt().matrix_layout_set_attribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &matrix.batch_stride, sizeof matrix.batch_stride),
      "cublasLtMatrixLayoutSetAttribute", stream);
}

GemmProblem::GemmProblem(cublasLtHandle_t handle, const Stream& stream, const GemmPlan& plan) {
  const Types types = types_of(plan.dtype, plan.allow_tf32);
  check_gemm(cublaslt().matmul_desc_create(operation_.out(), types.compute, types.scale),
             "cublasLtMatmulDescCreate", stream);
  const auto operation = [](const GemmMatrix& matrix) {
    return matrix.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(plan.b), stream);
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(plan.a), stream);
  if (plan.has_epilogue()) set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(plan), stream);
  if (plan.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, plan.bias, stream);
  describe(a_, types.data, plan.m, plan.k, plan.a, plan.batch, stream);
  describe(b_, types.data, plan.k, plan.n, plan.b, plan.batch, stream);
  const GemmMatrix out{.leading = plan.n, .batch_stride = plan.m * plan.n};
  describe(out_, types.data, plan.m, plan.n, out, plan.batch, stream);
  choose(handle, stream, plan);
}

void GemmProblem::choose(cublasLtHandle_t handle, const Stream& stream, const GemmPlan& plan) {
  Preference preference;
  check_gemm(cublaslt().matmul_preference_create(preference.out()),
             "cublasLtMatmulPreferenceCreate", stream);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
    check_gemm(cublaslt().matmul_preference_set_attribute(preference, which, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute", stream);
  };
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(plan.b.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(plan.a.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(plan.out));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(plan.out));
  // Parts of a long depth are added in f32, not in the 16 bits of the result.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  cublasLtMatmulHeuristicResult_t result = {};
  const auto ask = [&](std::uint64_t workspace) {
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    int count = 0;
    const cublasStatus_t status = cublaslt().matmul_algo_get_heuristic(
        handle, operation_, b_, a_, out_, out_, preference, 1, &result, &count);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : result.state;
  };
  const std::uint64_t workspace = workspace_of(plan, stream.device());
  cublasStatus_t status = ask(workspace);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED && workspace == 0) status = ask(kWorkspaceBytes);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED && plan.has_epilogue()) return;
  check_gemm(status, "cublasLtMatmulAlgoGetHeuristic", stream);
  has_algorithm_ = true;
  algorithm_ = result.algo;
  workspace_bytes_ = result.workspaceSize;
}

void GemmProblem::run(cublasLtHandle_t handle, const Stream& stream, const GemmPlan& plan) {
  Scratch workspace;
  if (workspace_bytes_ > 0) workspace = Scratch(Target::on(stream), workspace_bytes_);
  const auto alpha = static_cast<float>(plan.alpha);
  const auto beta = static_cast<float>(plan.beta);
  const bool is_double = plan.dtype == DType::f64;
  const void* scale = is_double ? static_cast<const void*>(&plan.alpha) : &alpha;
  const void* keep = is_double ? static_cast<const void*>(&plan.beta) : &beta;
  std::unique_lock<std::mutex> lock;
  if (plan.bias != nullptr) {
    lock = std::unique_lock(bias_);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, plan.bias, stream);
  }
  check_gemm(cublaslt().matmul(handle, operation_, scale, plan.b.data, b_, plan.a.data, a_, keep,
                               plan.out, out_, plan.out, out_, &algorithm_, workspace.data(),
                               workspace_bytes_, static_cast<cudaStream_t>(stream.native_handle())),
             "cublasLtMatmul", stream);
}

}  // namespace gantry::kernels::cuda
