#include <cuda_runtime.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reductions/narrow_columns.hpp"
#include "kernels/cuda/reductions/reduce_families.hpp"

namespace gantry::kernels::cuda {

std::int64_t merge_counter_count(const ReducePlan& plan) {
  if (!plan.is_column_wise()) return plan.outputs;
  const int columns = has_narrow_columns(plan) ? narrow_tile(plan) : kSmallSingleTile;
  return (plan.outputs + columns - 1) / columns;
}

void clear_counters(void* stream, std::uint32_t* counters, std::int64_t count) {
  const cudaError_t status =
      cudaMemsetAsync(counters, 0, static_cast<std::size_t>(count) * sizeof(*counters),
                      static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw_launch_error("reduce", stream, status);
  }
}

void reduce(void* stream, const ReducePlan& plan) {
  // A later pass reduces results: squares were taken and zeros counted by the first.
  switch (plan.reads_partials ? merging_reduction(plan.op) : plan.op) {
    case Reduction::sum:
      return reduce_sum(stream, plan);
    case Reduction::prod:
      return reduce_product(stream, plan);
    case Reduction::min:
    case Reduction::max:
      // The results of any and all are counts.
      if (plan.op == Reduction::any || plan.op == Reduction::all) return reduce_sum(stream, plan);
      return reduce_extreme(stream, plan);
    case Reduction::norm2:
    case Reduction::sum_abs:
      return reduce_norm(stream, plan);
    case Reduction::any:
    case Reduction::all:
    case Reduction::count_nonzero:
      return reduce_nonzero(stream, plan);
    case Reduction::variance:
    case Reduction::deviation:
      return reduce_moments(stream, plan);
    case Reduction::log_sum_exp:
      return reduce_log_sum_exp(stream, plan);
    case Reduction::argmax:
    case Reduction::argmin:
      return reduce_arg(stream, plan);
  }
}

}  // namespace gantry::kernels::cuda
