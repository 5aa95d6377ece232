#include "kernels/cuda/softmax/softmax_fibres.hpp"
#include "kernels/cuda/softmax/softmax_held_rows.cuh"
#include "kernels/cuda/softmax/softmax_long_rows.cuh"
#include "kernels/cuda/softmax/softmax_short_rows.cuh"
#include "kernels/cuda/softmax/softmax_split_rows.cuh"

namespace gantry::kernels::cuda {

std::size_t softmax_scratch_bytes(const FibrePlan& plan) {
  std::size_t bytes = 0;
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<T>)) {
      if (is_split<T>(plan)) {
        bytes = SplitRows<AccumulatorType<T>>(plan, nullptr).bytes(plan.count);
      }
    }
  });
  return bytes;
}

void softmax(void* stream, bool logarithm, const FibrePlan& unmerged, void* scratch) {
  const FibrePlan plan = with_merged_dims(unmerged);
  if (softmax_of_fibres(stream, logarithm, plan)) return;
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<T>)) {
      if (plan.length <= kShortRow) {
        launch_short_rows<T>(stream, logarithm, plan);
      } else if (plan.length <= kHeldRow<T>) {
        launch_held_rows<T>(stream, logarithm, plan);
      } else if (is_split<T>(plan)) {
        launch_split_rows<T>(stream, logarithm, plan, scratch);
      } else {
        launch_long_rows<T>(stream, logarithm, plan);
      }
    }
  });
}

}  // namespace gantry::kernels::cuda
