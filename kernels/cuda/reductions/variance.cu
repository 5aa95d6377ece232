#include "kernels/reductions/variance.hpp"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reductions/accumulators.cuh"
#include "kernels/cuda/reductions/device_reducers.cuh"
#include "kernels/impl/variance.inl"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {

namespace {

static_assert(kVarianceLanes == kReduceAccumulators);

// The tree over the values of the lanes, one in each thread. Every thread gets the result.
__device__ double merge_lanes(double value) {
  __shared__ double merged;
  const double result = combine_block_accumulators(SumReducer<double>{}, value);
  if (threadIdx.x == 0) merged = result;
  __syncthreads();
  return merged;
}

// Each thread looks at one output. The block then repeats those that are not finite, a lane in each
// thread.
template <class T>
__global__ void __launch_bounds__(kVarianceLanes)
    repeat_variances_kernel(const __grid_constant__ ReducePlan plan) {
  __shared__ bool repeats[kVarianceLanes];
  const int lane = static_cast<int>(threadIdx.x);
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kVarianceLanes;
       first < plan.outputs; first += static_cast<std::int64_t>(gridDim.x) * kVarianceLanes) {
    const std::int64_t own = first + lane;
    const bool repeats_own = own < plan.outputs && !VarianceResults<T>(plan, own).are_finite();
    repeats[lane] = repeats_own;
    if (__syncthreads_or(repeats_own) == 0) continue;
    for (int i = 0; i < kVarianceLanes; ++i) {
      if (!repeats[i]) continue;
      const ScaledVariance variance(plan, first + i);
      const double sum = merge_lanes(variance.lane_sum(lane));
      if (!is_finite(sum)) continue;
      const double mean = variance.mean(sum);
      const double squares = merge_lanes(variance.lane_squares(lane, mean));
      if (lane == 0) VarianceResults<T>(plan, first + i).replace(variance, squares, mean);
    }
    __syncthreads();  // every thread has read which outputs are repeated
  }
}

}  // namespace

void repeat_variances(void* stream, const ReducePlan& plan) {
  const std::int64_t needed = (plan.outputs + kVarianceLanes - 1) / kVarianceLanes;
  const auto blocks = static_cast<unsigned>(needed < kMaxBlocks ? needed : kMaxBlocks);
  dispatch_floating("var", plan.out_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch("repeat_variances", stream, blocks, kVarianceLanes, 0, repeat_variances_kernel<T>, plan);
  });
}

}  // namespace gantry::kernels::cuda
