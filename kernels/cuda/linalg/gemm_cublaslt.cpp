#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "device/cuda/cuda_context.hpp"
#include "kernels/cuda/linalg/gemm_problem.hpp"
#include "kernels/linalg/gemm_plan.hpp"
#include "kernels/recent_cache.hpp"

namespace gantry::kernels::cuda {

namespace {

// The cuBLASLt handle of the stream's device. Handles are never destroyed, because CUDA may shut
// down before static destructors run.
cublasLtHandle_t handle_of(const Stream& stream) {
  static std::mutex mutex;
  static auto* const handles = new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = (*handles)[stream.device().index];
  if (handle == nullptr) {
    const ::gantry::cuda::RelaxedCaptureScope relaxed;
    check_gemm(cublaslt().create(&handle), "cublasLtCreate", stream);
  }
  return handle;
}

// The problem of `plan`. A program of more products than the cache holds pays the heuristic again.
std::shared_ptr<GemmProblem> problem_of(cublasLtHandle_t handle, const Stream& stream,
                                        const GemmPlan& plan) {
  constexpr std::size_t kProblems = 1024;
  static auto& known = *new RecentCache<GemmProblemKey, GemmProblem, GemmProblemHash>(kProblems);
  return known.find_or_make(GemmProblemKey(plan, stream.device().index),
                            [&] { return std::make_shared<GemmProblem>(handle, stream, plan); });
}

}  // namespace

bool gemm(const Stream& stream, const GemmPlan& plan) {
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
    const std::shared_ptr<GemmProblem> problem = problem_of(handle, stream, part);
    if (!problem->has_algorithm()) return false;
    problem->run(handle, stream, part);
  }
  return true;
}

}  // namespace gantry::kernels::cuda
