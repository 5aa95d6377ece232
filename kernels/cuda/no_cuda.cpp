// The GPU kernels of a build without CUDA: each throws NotSupported.
#include <string>

#include <gantry/core/error.hpp>

#include "kernels/elementwise/cuda_elementwise.hpp"
#include "kernels/elementwise/special.hpp"
#include "kernels/indexing/compaction_plan.hpp"
#include "kernels/indexing/indexing_plan.hpp"
#include "kernels/jit/cuda_jit.hpp"
#include "kernels/layout/cuda_copy.hpp"
#include "kernels/layout/join_plan.hpp"
#include "kernels/layout/roll.hpp"
#include "kernels/linalg/cuda_blas_handle.hpp"
#include "kernels/linalg/gemm_plan.hpp"
#include "kernels/ordering/binning_plan.hpp"
#include "kernels/ordering/sort_plan.hpp"
#include "kernels/peers/multicast_plan.hpp"
#include "kernels/peers/nary_plan.hpp"
#include "kernels/random/cuda_random.hpp"
#include "kernels/random/distributions.hpp"
#include "kernels/reductions/fibre_plan.hpp"
#include "kernels/reductions/reduce_plan.hpp"
#include "kernels/reductions/variance.hpp"

namespace gantry::kernels::cuda {
namespace {

[[noreturn]] void refuse(const char* kernel) {
  throw NotSupported(std::string(kernel) +
                     ": failed to launch the GPU kernel: gantry was built without CUDA "
                     "(GANTRY_CUDA=OFF)");
}

}  // namespace

void unary(void*, UnaryOp, const TensorRef&, const TensorRef&) { refuse("unary"); }
void predicate(void*, PredicateOp, const TensorRef&, const TensorRef&) { refuse("predicate"); }
void binary(void*, BinaryOp, const TensorRef&, const Operand&, const Operand&, const Scalar&) {
  refuse("binary");
}
void compare(void*, CompareOp, const TensorRef&, const Operand&, const Operand&, DType) {
  refuse("compare");
}
void ternary(void*, TernaryOp, const TensorRef&, const Operand&, const Operand&, const Operand&,
             const Scalar&) {
  refuse("ternary");
}
void where(void*, const TensorRef&, const TensorRef&, const Operand&, const Operand&) {
  refuse("where");
}

void special(void*, SpecialOp, const TensorRef&, const TensorRef&, const SpecialParameters&) {
  refuse("special");
}
void special(void*, SpecialBinaryOp, const TensorRef&, const Operand&, const Operand&) {
  refuse("special");
}

void copy(void*, const TensorRef&, const TensorRef&) { refuse("copy"); }
void roll_rows(void*, const RollPlan&) { refuse("roll"); }
void join(void*, const JoinPlan&) { refuse("cat"); }
void fill(void*, const TensorRef&, const Scalar&) { refuse("fill"); }
void arange(void*, const TensorRef&, const Scalar&, const Scalar&, std::int64_t) {
  refuse("arange");
}
void triangle(void*, const TensorRef&, const TensorRef&, bool, std::int64_t) { refuse("triangle"); }

void store_position(void*, std::uint64_t*, RandomPosition) { refuse("store_position"); }
void uniform(void*, const TensorRef&, RandomPosition, double, double) { refuse("uniform"); }
void normal(void*, const TensorRef&, RandomPosition, double, double) { refuse("normal"); }
void randint(void*, const TensorRef&, RandomPosition, std::int64_t, std::int64_t) {
  refuse("randint");
}
void bernoulli(void*, const TensorRef&, const TensorRef&, RandomPosition) { refuse("bernoulli"); }
std::size_t randperm_workspace(std::int64_t) { refuse("randperm"); }
void randperm(void*, const TensorRef&, RandomPosition, void*) { refuse("randperm"); }

void uniform_shard(void*, const TensorRef&, RandomPosition, const ShardPlace&) {
  refuse("uniform");
}
void normal_shard(void*, const TensorRef&, RandomPosition, const ShardPlace&) { refuse("normal"); }
void exponential(void*, const TensorRef&, RandomPosition, double) { refuse("exponential"); }
void cauchy(void*, const TensorRef&, RandomPosition, double, double) { refuse("cauchy"); }
void log_normal(void*, const TensorRef&, RandomPosition, double, double) { refuse("log_normal"); }
void geometric(void*, const TensorRef&, RandomPosition, double) { refuse("geometric"); }
void poisson(void*, const TensorRef&, const TensorRef&, RandomPosition) { refuse("poisson"); }
void categorical(void*, const TensorRef&, const TensorRef&, RandomPosition) {
  refuse("multinomial");
}

std::int64_t merge_counter_count(const ReducePlan&) { refuse("reduce"); }
void clear_counters(void*, std::uint32_t*, std::int64_t) { refuse("reduce"); }
void reduce(void*, const ReducePlan&) { refuse("reduce"); }
void repeat_variances(void*, const ReducePlan&) { refuse("var"); }
bool has_long_rows(const ReducePlan&) { refuse("arg_reduce"); }
std::int64_t arg_chunk_length(const FibrePlan&) { refuse("arg_reduce"); }
void arg_reduce(void*, bool, const FibrePlan&, const Fibres&, const ArgPartials&) {
  refuse("arg_reduce");
}
std::size_t scan_scratch_bytes(const FibrePlan&) { refuse("scan"); }
void scan(void*, ScanOp, const FibrePlan&, void*) { refuse("scan"); }
std::size_t softmax_scratch_bytes(const FibrePlan&) { refuse("softmax"); }
void softmax(void*, bool, const FibrePlan&, void*) { refuse("softmax"); }

void sort_in_blocks(void*, const SortPlan&, const SortCandidates&) { refuse("sort"); }
std::size_t sort_scratch_bytes(const SortPlan&) { refuse("sort"); }
void sort(void*, const SortPlan&, void*) { refuse("sort"); }
bool has_sorted_values(const SortPlan&) { refuse("sort"); }
std::size_t sort_values_bytes(const SortPlan&) { refuse("sort"); }
void sort_values(void*, const SortPlan&, void*) { refuse("sort"); }
std::size_t select_scratch_bytes(const SortPlan&) { refuse("select_rank"); }
void select(void*, const SortPlan&, void*) { refuse("select_rank"); }
std::size_t cumulative_scratch_bytes(const SortPlan&) { refuse("cumulative_extremum"); }
void cumulative_extremum(void*, const SortPlan&, void*) { refuse("cumulative_extremum"); }
void searchsorted(void*, const SearchPlan&) { refuse("searchsorted"); }
void count_values(void*, const CountPlan&) { refuse("count_values"); }
void count_bins(void*, const CountPlan&) { refuse("count_bins"); }
void run_starts(void*, const RunPlan&) { refuse("run_starts"); }
std::size_t first_of_runs_bytes(const FirstsPlan&) { refuse("first_of_runs"); }
void first_of_runs(void*, const FirstsPlan&, void*) { refuse("first_of_runs"); }

void gather(void*, const IndexingPlan&) { refuse("gather"); }
void index_offsets(void*, const OffsetsPlan&) { refuse("index"); }
std::size_t index_scatter_bytes(const IndexingPlan&, ScatterMode) { refuse("index_put_"); }
void index_scatter(void*, const IndexingPlan&, ScatterMode, void*) { refuse("index_put_"); }
bool has_short_rows(const IndexingPlan&) { refuse("scatter"); }
void scatter_fibres(void*, const IndexingPlan&, ScatterMode) { refuse("scatter"); }
bool has_owners(const IndexingPlan&, ScatterMode) { refuse("scatter"); }
void scatter_owners(void*, const IndexingPlan&, ScatterMode) { refuse("scatter"); }
bool has_tiles(const IndexingPlan&, ScatterMode) { refuse("scatter"); }
void scatter_tiles(void*, const IndexingPlan&, ScatterMode) { refuse("scatter"); }
std::size_t scatter_writes_bytes(const IndexingPlan&, ScatterMode) { refuse("scatter"); }
void scatter_writes(void*, const IndexingPlan&, ScatterMode, void*) { refuse("scatter"); }

bool sums_in_last_block(const CompactionPlan&) { refuse("nonzero"); }
std::size_t read_mask_bytes(const CompactionPlan&) { refuse("nonzero"); }
void read_mask(void*, const CompactionPlan&, const MergeCounters&, void*) { refuse("nonzero"); }
void compact(const char* op, void*, const CompactionPlan&) { refuse(op); }

void nary(void*, const NaryPlan&) { refuse("nary"); }
void nary_batched(void*, const NaryBatchPlan&) { refuse("nary"); }
void multicast(void*, std::span<const CopyRegion>, std::span<const std::ptrdiff_t>) {
  refuse("multicast");
}
bool gemm(const Stream&, const GemmPlan&) { refuse("gemm"); }
JitProgram jit_program(int, const jit::Signature&, const std::string&, const jit::Specialization&) {
  refuse("jit::elementwise");
}
void launch_jit(const Stream&, const JitProgram&, const jit::Specialization&,
                const jit::Parameters&) {
  refuse("jit::elementwise");
}
void* blas_handle(const Stream&) { refuse("current_blas_handle"); }

}  // namespace gantry::kernels::cuda
