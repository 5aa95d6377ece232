// What a build without CUDA has in place of this folder's reductions, indexing, folds, copies of
// runs and gemm.
#include <string>

#include <gantry/core/error.hpp>

#include "kernels/fan_plan.hpp"
#include "kernels/fold_plan.hpp"
#include "kernels/gemm_plan.hpp"
#include "kernels/indexing_plan.hpp"
#include "kernels/line_plans.hpp"
#include "kernels/reduce_plan.hpp"

namespace gantry::kernels::cuda {
namespace {

[[noreturn]] void refuse(const char* kernel) {
  throw NotSupported(std::string(kernel) +
                     ": a GPU kernel was called, but this gantry was built without CUDA "
                     "(GANTRY_CUDA=OFF)");
}

}  // namespace

void reduce(void*, const ReducePlan&) { refuse("reduce"); }
void arg_reduce(void*, bool, const LinePlan&, const Lines&, std::int64_t*) { refuse("arg_reduce"); }
void cumulate(void*, bool, const LinePlan&) { refuse("cumulate"); }
void softmax(void*, bool, const LinePlan&) { refuse("softmax"); }

void gather(void*, const IndexingPlan&) { refuse("gather"); }
void scatter_lines(void*, const IndexingPlan&, bool) { refuse("scatter"); }
std::size_t scatter_sorted_bytes(const IndexingPlan&) { refuse("scatter"); }
void scatter_sorted(void*, const IndexingPlan&, bool, void*) { refuse("scatter"); }

void fold(void*, const FoldPlan&) { refuse("fold"); }
void fold_runs(void*, const FoldRunsPlan&) { refuse("fold"); }
void fan(void*, std::span<const CopyRegion>, std::span<const std::ptrdiff_t>) { refuse("fan"); }
void gemm(const Stream&, const GemmPlan&) { refuse("gemm"); }

}  // namespace gantry::kernels::cuda
