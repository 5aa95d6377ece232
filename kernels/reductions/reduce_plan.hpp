#pragma once

#include <cmath>
#include <cstdint>

#include <gantry/core/dtype.hpp>

#include "kernels/reductions/merge_counters.hpp"
#include "kernels/reductions/reduce.hpp"
#include "kernels/strided_index.hpp"
#include "kernels/target.hpp"

namespace gantry::kernels {

// Accumulators and length of one chunk of Note [Reduction order].
inline constexpr std::int64_t kReduceAccumulators = 128;
inline constexpr std::int64_t kReduceChunk = 128 * kReduceAccumulators;

// A sum in two parts, of which neither overflows.
struct WideSum {
  double low = 0;   // of small addends
  double high = 0;  // of large addends, over 2^64

  GANTRY_HD void add(double addend) {
    const double magnitude = addend < 0 ? -addend : addend;
    if (magnitude < 0x1p900) {
      low += addend;
    } else {
      high += addend * 0x1p-64;
    }
  }
  GANTRY_HD void add(const WideSum& other) {
    low += other.low;
    high += other.high;
  }
  // False if an addend is infinite or NaN.
  [[nodiscard]] GANTRY_HD bool is_finite() const { return high - high == 0; }
  // The sum, rounded once.
  [[nodiscard]] GANTRY_HD double value() const { return ::fma(high, 0x1p64, low); }
};

// The elements of a reduction.
struct ReduceSource {
  const void* data = nullptr;
  DType dtype = DType::f32;
  StridedIndex kept;
  StridedIndex reduced;
  std::int64_t length = 0;
};

// The plan of one pass over `in`, for both backends. A POD.
//
// The kept dims enumerate the outputs, sorted by decreasing stride of the input. The reduced dims
// enumerate one reduction's elements in row-major order.
struct ReducePlan {
  Reduction op = Reduction::sum;
  DType in_dtype = DType::f32;
  DType accumulator = DType::f32;  // f32, f64 or i64
  DType out_dtype = DType::f32;
  double divisor = 1;
  const void* in = nullptr;
  void* out = nullptr;
  void* second_out = nullptr;  // means beside variances, values beside indices, laid out like `out`
  StridedIndex kept;           // strides of the input
  StridedIndex kept_out;       // the same sizes, strides of the output
  bool has_dense_outputs = false;  // output `o` lies o elements behind the first
  StridedIndex reduced;            // strides of the input
  ReduceSource source;             // the elements, also in a pass over the results of another
  std::int64_t outputs = 0;
  std::int64_t length = 0;
  std::int64_t chunks = 0;  // per output

  // GPU only. With several chunks, the result of chunk c of output o goes to
  // partials[o * partial_output_stride + c * partial_chunk_stride].
  void* partials = nullptr;
  std::int64_t partial_output_stride = 0;
  std::int64_t partial_chunk_stride = 0;
  // Elements of one output over all passes. `all` compares its count of non-zeros with it.
  std::int64_t total_length = 0;
  bool reads_partials = false;  // `in` holds the results of an earlier pass
  // Note [Overflowing chunks]: wide results beside `partials` and, of an earlier pass, beside `in`.
  WideSum* wide_partials = nullptr;
  const WideSum* wide_in = nullptr;
  // The block that finishes last reduces the partials of an output to its result.
  bool merges = false;
  MergeCounters counters;

  // True if the inputs of neighbouring outputs are closer together than the inputs of one output.
  [[nodiscard]] bool is_column_wise() const;
};

// The type in which `op` accumulates elements of `dtype`.
[[nodiscard]] DType accumulator_dtype(Reduction op, DType dtype);

// The reduction that combines the chunk results of `op`.
[[nodiscard]] GANTRY_HD constexpr Reduction merging_reduction(Reduction op) {
  switch (op) {
    case Reduction::sum:
    case Reduction::norm2:
    case Reduction::sum_abs:
    case Reduction::count_nonzero:
      return Reduction::sum;
    case Reduction::prod:
      return Reduction::prod;
    case Reduction::min:
    case Reduction::all:
      return Reduction::min;
    case Reduction::max:
    case Reduction::any:
      return Reduction::max;
    case Reduction::variance:
    case Reduction::deviation:
    case Reduction::log_sum_exp:
    case Reduction::argmax:
    case Reduction::argmin:
      break;  // a merge of states
  }
  return op;
}

// True if the state of `op` is several numbers. Such results are merged in one launch.
[[nodiscard]] constexpr bool has_state(Reduction op) { return op >= Reduction::variance; }

[[nodiscard]] ReducePlan make_reduce_plan(Reduction op, const TensorRef& out, const TensorRef& in,
                                          double divisor);

// The plan that reduces the partials of `pass`. Its own `partials` is null.
[[nodiscard]] ReducePlan make_merge_plan(const ReducePlan& pass);

// Runs `plan` on a stream of a GPU, one pass per level of Note [Reduction order]. A pass of few
// chunks does the next level, too.
void reduce_on_gpu(const Target& target, void* stream, const ReducePlan& plan);

namespace host {
void reduce(const ReducePlan& plan);
}  // namespace host

namespace cuda {
// The number of counters that a launch of `plan` with `merges` needs.
[[nodiscard]] std::int64_t merge_counter_count(const ReducePlan& plan);
void reduce(void* stream, const ReducePlan& plan);
// True if rows of argmax or argmin are so long that arg_reduce() is for them.
[[nodiscard]] bool has_long_rows(const ReducePlan& plan);
}  // namespace cuda

}  // namespace gantry::kernels
