// Softmax on the GPU: columns, fibres that are too short for a warp, and fibres of one element.
#include "kernels/cuda/softmax/softmax_columns.cuh"
#include "kernels/cuda/softmax/softmax_fibres.hpp"
#include "kernels/cuda/softmax/softmax_slabs.cuh"
#include "kernels/cuda/softmax/softmax_thread_fibres.cuh"

namespace gantry::kernels::cuda {

namespace {

// Fewest columns that fill a GPU with a thread each. Of at most 16 elements, fewer do: a column of
// softmax_columns has 8 threads, whose two elements are less than their work on the tree.
constexpr std::int64_t kManyColumns = 65536;
constexpr std::int64_t kManyShortColumns = 16384;
constexpr std::int64_t kShortColumn = 16;
// Longest wide row that leaves lanes of softmax_wide_short_rows without elements.
constexpr std::int64_t kLongestStaged = 16;

// Dense fibres of one element: the result is 1, or 0 for the logarithm, and NaN of a NaN or an
// infinity. A thread has kWide<T> of them, aligned if kIsAligned.
template <class T, bool kIsAligned>
__global__ void __launch_bounds__(kThreads)
    softmax_single_elements(std::int64_t count, const T* in, T* out, bool logarithm) {
  using Acc = AccumulatorType<T>;
  constexpr int V = kWide<T>;
  using Vector = StoredPack<T, V>;
  const auto result_of = [&](T value) {
    const Acc difference = static_cast<Acc>(value) - static_cast<Acc>(value);
    return stored<T>(difference == 0 ? Acc(logarithm ? 0 : 1) : canonical(difference));
  };
  for (std::int64_t first = first_index() * V; first < count; first += index_step() * V) {
    if (kIsAligned && first + V <= count) {
      Vector vector = *reinterpret_cast<const Vector*>(in + first);
#pragma unroll
      for (T& value : vector.values) value = result_of(value);
      *reinterpret_cast<Vector*>(out + first) = vector;
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (first + v < count) out[first + v] = result_of(in[first + v]);
      }
    }
  }
}

bool are_side_by_side(const Fibres& fibres) {
  return fibres.outer.ndim == 0 || (fibres.outer.ndim == 1 && fibres.outer.strides[0] == 1);
}

template <class T>
void launch_single_elements(void* stream, bool logarithm, const FibrePlan& plan) {
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  };
  launch("softmax_single_elements", stream, blocks_for((plan.count + kWide<T> - 1) / kWide<T>),
         kThreads, 0,
         is_aligned(plan.in.data) && is_aligned(plan.out.data) ? softmax_single_elements<T, true>
                                                               : softmax_single_elements<T, false>,
         plan.count, static_cast<const T*>(plan.in.data), static_cast<T*>(plan.out.data),
         logarithm);
}

template <class T>
bool launch_fibres(void* stream, bool logarithm, const FibrePlan& plan) {
  const std::int64_t length = plan.length;
  if (length == 1 && are_side_by_side(plan.in) && are_side_by_side(plan.out)) {
    launch_single_elements<T>(stream, logarithm, plan);
    return true;
  }
  const bool is_column_wise = plan.is_column_wise();
  const std::int64_t columns =
      is_column_wise ? plan.in.outer.sizes[plan.in.outer.ndim - 1] : std::int64_t{1};
  if (length <= kThreadFibre<T>) {
    if (columns > kMostSlabColumns &&
        plan.count >= (length <= kShortColumn ? kManyShortColumns : kManyColumns)) {
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
