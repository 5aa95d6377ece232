// Softmax on the GPU: columns, and fibres that are too short for a warp.
#include "kernels/cuda/softmax/softmax_columns.cuh"
#include "kernels/cuda/softmax/softmax_fibres.hpp"
#include "kernels/cuda/softmax/softmax_slabs.cuh"
#include "kernels/cuda/softmax/softmax_thread_fibres.cuh"

namespace gantry::kernels::cuda {

namespace {

// Fewest columns that fill a GPU with a thread each.
constexpr std::int64_t kManyColumns = 65536;
// Longest wide row that leaves lanes of softmax_wide_short_rows without elements.
constexpr std::int64_t kLongestStaged = 16;

template <class T>
bool launch_fibres(void* stream, bool logarithm, const FibrePlan& plan) {
  const std::int64_t length = plan.length;
  const bool is_column_wise = plan.is_column_wise();
  const std::int64_t columns =
      is_column_wise ? plan.in.outer.sizes[plan.in.outer.ndim - 1] : std::int64_t{1};
  if (length <= kThreadFibre<T>) {
    if (columns > kMostSlabColumns && plan.count >= kManyColumns) {
      launch_thread_columns<T>(stream, logarithm, plan);
      return true;
    }
    const bool is_wide = !is_column_wise && sizeof(T) <= 4 && length > kLongestStaged &&
                         has_wide_rows<T, 4>(plan.in, length) &&
                         has_wide_rows<T, 4>(plan.out, length);
    const int inner = dense_slab(plan.in, length);
    if (!is_wide && inner > 0 && inner <= kMostSlabColumns &&
        dense_slab(plan.out, length) == inner) {
      launch_tiles<T>(stream, logarithm, plan, inner);
      return true;
    }
  }
  if (!is_column_wise || length > kReduceChunk) return false;
  if (columns > 1 && columns <= kMostSlabColumns && length > kThreadFibre<T>) {
    launch_slabs<T>(stream, logarithm, plan, static_cast<int>(columns));
    return true;
  }
  if (plan.count < 8) return false;
  launch_columns<T>(stream, logarithm, plan);
  return true;
}

}  // namespace

bool softmax_of_fibres(void* stream, bool logarithm, const FibrePlan& plan) {
  bool is_launched = false;
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<T>)) {
      is_launched = launch_fibres<T>(stream, logarithm, plan);
    }
  });
  return is_launched;
}

}  // namespace gantry::kernels::cuda
