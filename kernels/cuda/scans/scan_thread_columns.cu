// Scans of many short columns on the GPU: a thread has a column.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scans/scan_thread_columns.hpp"
#include "kernels/impl/scan.inl"

namespace gantry::kernels::cuda {

namespace {

// Threads of a block.
constexpr int kOwnColumns = 128;
// Fewest columns that fill a GPU with a thread each.
constexpr std::int64_t kManyOwnColumns = 65536;
// Longest column: one group of groups, whose value before a group is a running value.
constexpr std::int64_t kOwnColumn = kScanGroup * kScanGroup;
static_assert(kOwnColumn <= kScanTile);

// The elements of a group are in flight together.
template <class In, ScanOp kOp>
__global__ void __launch_bounds__(kOwnColumns, sizeof(In) == 8 ? 6 : 8)
    scan_columns_by_thread(const __grid_constant__ FibrePlan plan) {
  using Out = ScanOut<In>;
  using Step = ScanStep<ScanAccumulator<In>, kOp>;
  using Acc = typename Step::Acc;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kOwnColumns + threadIdx.x;
  if (column >= plan.count) return;
  const In* const in = static_cast<const In*>(plan.in.data) + plan.in.outer.offset(column);
  Out* const out = static_cast<Out*>(plan.out.data) + plan.out.outer.offset(column);
  const int length = static_cast<int>(plan.length);
  Acc before = Step::neutral();
  [[maybe_unused]] bool fails = false;
  for (int first = 0; first < length; first += kScanGroup) {
    In elements[kScanGroup];
#pragma unroll
    for (int i = 0; i < kScanGroup; ++i) {
      if (first + i < length) elements[i] = in[(first + i) * plan.in.stride];
    }
    Acc running = Step::neutral();
    Acc result = before;
#pragma unroll
    for (int i = 0; i < kScanGroup; ++i) {
      if (first + i < length) {
        running = Step::combine(running, static_cast<Acc>(elements[i]));
        result = Step::combine(before, running);
        const Out rounded = from_accumulator<Out>(result);
        out[(first + i) * plan.out.stride] = rounded;
        if constexpr (kBeginsAgain<In, kOp>) fails |= !is_finite(rounded);
      }
    }
    if constexpr (kRestarts<In, kOp> && !kBeginsAgain<In, kOp>) fails |= !is_finite(result);
    // The value before the next group: the running value of the totals.
    before = result;
  }
  if constexpr (kRestarts<In, kOp>) {
    if (fails) {
      scan_left_to_right<Step>(out, plan.out.stride, in, plan.in.stride, plan.length,
                               Step::neutral());
    }
  }
}

}  // namespace

bool scan_thread_columns(void* stream, ScanOp op, const FibrePlan& plan) {
  if (!plan.is_column_wise() || plan.count < kManyOwnColumns || plan.length > kOwnColumn) {
    return false;
  }
  const auto blocks = static_cast<unsigned>((plan.count + kOwnColumns - 1) / kOwnColumns);
  dispatch_stored(plan.dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    const auto run = [&](auto kernel) {
      launch("scan_columns", stream, blocks, kOwnColumns, 0, kernel, plan);
    };
    if (op == ScanOp::sum) run(scan_columns_by_thread<In, ScanOp::sum>);
    if (op == ScanOp::product) run(scan_columns_by_thread<In, ScanOp::product>);
    if constexpr (is_floating_point(dtype_of<In>)) {
      if (op == ScanOp::log_sum_exp) run(scan_columns_by_thread<In, ScanOp::log_sum_exp>);
    }
  });
  return true;
}

}  // namespace gantry::kernels::cuda
