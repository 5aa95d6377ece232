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

// Rows of a few-row scan, and the columns that each of its threads has in flight, so that it reads
// as many bytes at a time as a group of a long column.
constexpr int kFewRows = 4;
constexpr int kFewRowColumns = 4;

// A thread scans kColumns columns, which are kOwnColumns apart. kRows elements of each are in
// flight together: a group, or all of a shorter column.
template <class In, ScanOp kOp, int kRows, int kColumns>
__global__ void __launch_bounds__(kOwnColumns, sizeof(In) == 8 ? 6 : 8)
    scan_columns_by_thread(const __grid_constant__ FibrePlan plan) {
  using Out = ScanOut<In>;
  using Step = ScanStep<ScanAccumulator<In>, kOp>;
  using Acc = typename Step::Acc;
  const std::int64_t column =
      static_cast<std::int64_t>(blockIdx.x) * (kOwnColumns * kColumns) + threadIdx.x;
  const int length = static_cast<int>(plan.length);
  if constexpr (kRows < kScanGroup) __builtin_assume(length <= kRows);
  const In* in[kColumns];
  Out* out[kColumns];
  Acc before[kColumns];
  [[maybe_unused]] bool fails[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    // A thread behind the end has the last column, and does not write it.
    const std::int64_t own = column + c * kOwnColumns;
    const std::int64_t at = own < plan.count ? own : plan.count - 1;
    in[c] = static_cast<const In*>(plan.in.data) + plan.in.outer.offset(at);
    out[c] = static_cast<Out*>(plan.out.data) + plan.out.outer.offset(at);
    before[c] = Step::neutral();
    fails[c] = false;
  }
  const auto is_present = [&](int c) { return column + c * kOwnColumns < plan.count; };
  for (int first = 0; first < length; first += kRows) {
    In elements[kColumns][kRows];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (first + i < length) elements[c][i] = in[c][(first + i) * plan.in.stride];
      }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      Acc running = Step::neutral();
      Acc result = before[c];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (first + i < length) {
          running = Step::combine(running, static_cast<Acc>(elements[c][i]));
          result = Step::combine(before[c], running);
          const Out rounded = from_accumulator<Out>(result);
          if (is_present(c)) out[c][(first + i) * plan.out.stride] = rounded;
          if constexpr (kBeginsAgain<In, kOp>) fails[c] |= !is_finite(rounded);
        }
      }
      if constexpr (kRestarts<In, kOp> && !kBeginsAgain<In, kOp>) fails[c] |= !is_finite(result);
      // The value before the next group: the running value of the totals.
      before[c] = result;
    }
  }
  if constexpr (kRestarts<In, kOp>) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (fails[c] && is_present(c)) {
        scan_left_to_right<Step>(out[c], plan.out.stride, in[c], plan.in.stride, plan.length,
                                 Step::neutral());
      }
    }
  }
}

}  // namespace

bool scan_thread_columns(void* stream, ScanOp op, const FibrePlan& plan) {
  if (!plan.is_column_wise() || plan.count < kManyOwnColumns || plan.length > kOwnColumn) {
    return false;
  }
  dispatch_stored(plan.dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    const auto run = [&](auto kernel, int columns) {
      const std::int64_t per_block = kOwnColumns * columns;
      launch("scan_columns", stream,
             static_cast<unsigned>((plan.count + per_block - 1) / per_block), kOwnColumns, 0,
             kernel, plan);
    };
    const auto run_op = [&](auto op_tag) {
      constexpr ScanOp kOp = decltype(op_tag)::value;
      if (plan.length <= kFewRows) {
        run(scan_columns_by_thread<In, kOp, kFewRows, kFewRowColumns>, kFewRowColumns);
      } else {
        run(scan_columns_by_thread<In, kOp, kScanGroup, 1>, 1);
      }
    };
    if (op == ScanOp::sum) run_op(std::integral_constant<ScanOp, ScanOp::sum>{});
    if (op == ScanOp::product) run_op(std::integral_constant<ScanOp, ScanOp::product>{});
    if constexpr (is_floating_point(dtype_of<In>)) {
      if (op == ScanOp::log_sum_exp) run_op(std::integral_constant<ScanOp, ScanOp::log_sum_exp>{});
    }
  });
  return true;
}

}  // namespace gantry::kernels::cuda
