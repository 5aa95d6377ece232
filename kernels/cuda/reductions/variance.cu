#include "kernels/reductions/variance.hpp"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reductions/accumulators.cuh"
#include "kernels/cuda/reductions/device_reducers.cuh"
#include "kernels/impl/variance.inl"

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
    repeat_variances_kernel(const __grid_constant__ ReducePlan plan, bool is_root) {
  __shared__ bool repeats[kVarianceLanes];
  const int lane = static_cast<int>(threadIdx.x);
  T* out = static_cast<T*>(plan.out);
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kVarianceLanes;
       first < plan.outputs; first += static_cast<std::int64_t>(gridDim.x) * kVarianceLanes) {
    const std::int64_t own = first + lane;
    const bool repeats_own = own < plan.outputs && !is_finite(out[plan.kept_out.offset(own)]);
    repeats[lane] = repeats_own;
    if (__syncthreads_or(repeats_own) == 0) continue;
    for (int i = 0; i < kVarianceLanes; ++i) {
      if (!repeats[i]) continue;
      const ScaledVariance variance(plan, first + i);
      const double sum = merge_lanes(variance.lane_sum(lane));
      if (!is_finite(sum)) continue;
      const double squares = merge_lanes(variance.lane_squares(lane, variance.mean(sum)));
      if (lane == 0) {
        out[plan.kept_out.offset(first + i)] =
            from_accumulator<T>(variance.result(squares, is_root));
      }
    }
    __syncthreads();  // every thread has read which outputs are repeated
  }
}

}  // namespace

void repeat_variances(void* stream, const ReducePlan& plan, bool is_root) {
  const std::int64_t needed = (plan.outputs + kVarianceLanes - 1) / kVarianceLanes;
  const auto blocks = static_cast<unsigned>(needed < kMaxBlocks ? needed : kMaxBlocks);
  if (plan.out_dtype == DType::f64) {
    launch("repeat_variances", stream, blocks, kVarianceLanes, 0, repeat_variances_kernel<double>,
           plan, is_root);
  } else {
    launch("repeat_variances", stream, blocks, kVarianceLanes, 0, repeat_variances_kernel<float>,
           plan, is_root);
  }
}

}  // namespace gantry::kernels::cuda
