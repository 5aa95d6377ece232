// Softmax of rows of at most 1024 elements: a warp has a row in its registers.
#pragma once

#include "kernels/cuda/reductions/softmax_row.cuh"

namespace gantry::kernels::cuda {

namespace {

constexpr int kShortRow = 1024;
constexpr int kOwn = 4;

// The tree over the accumulators of a warp whose lane l has those from 4 l to 4 l + 3. Lanes share
// the work: of each pair that a step combines, either lane goes on with half of the accumulators.
// Sums do not depend on the order of two operands, so every lane gets the result.
template <class Acc>
__device__ Acc sum_neighbour_accumulators(const Acc (&own)[kOwn]) {
  using Sum = SoftmaxSum<Acc>;
  constexpr unsigned kAll = 0xffffffffu;
  const bool high = (threadIdx.x & 16) != 0;
  const bool odd = (threadIdx.x & 8) != 0;
  const Acc first =
      Sum::combine(high ? own[2] : own[0], __shfl_xor_sync(kAll, high ? own[0] : own[2], 16));
  const Acc second =
      Sum::combine(high ? own[3] : own[1], __shfl_xor_sync(kAll, high ? own[1] : own[3], 16));
  Acc result = Sum::combine(odd ? second : first, __shfl_xor_sync(kAll, odd ? first : second, 8));
#pragma unroll
  for (const int distance : {4, 2, 1, 16, 8}) {
    result = Sum::combine(result, __shfl_xor_sync(kAll, result, distance));
  }
  return result;
}

// A warp takes kRows rows at a time, of at most 128 * kVectors elements each. A lane has four
// neighbouring elements of each 128, hence as many accumulators.
template <class T, int kVectors, int kRows>
__global__ void __launch_bounds__(kThreads)
    softmax_wide_short_rows(const __grid_constant__ FibrePlan plan, bool logarithm) {
  using Acc = AccumulatorType<T>;
  using Max = SoftmaxMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  using Vector = StoredPack<T, kOwn>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int wide = static_cast<int>(plan.length) / kOwn;
  const int warps_per_block = static_cast<int>(blockDim.x) / 32;
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * warps_per_block;
  const std::int64_t own_warp =
      static_cast<std::int64_t>(blockIdx.x) * warps_per_block + threadIdx.x / 32;
  // The conditions on rows are uniform in a warp, so its shuffles have all threads.
  for (std::int64_t first = own_warp * kRows; first < plan.count; first += warps * kRows) {
    Vector loaded[kRows][kVectors];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first + r >= plan.count) break;
      const auto* in = reinterpret_cast<const Vector*>(static_cast<const T*>(plan.in.data) +
                                                       plan.in.outer.offset(first + r));
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (lane + i * 32 < wide) loaded[r][i] = in[lane + i * 32];
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first + r >= plan.count) break;
      Acc values[kVectors][kOwn];
      Acc maximum = Max::neutral();
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
#pragma unroll
        for (int v = 0; v < kOwn; ++v) {
          const bool is_present = lane + i * 32 < wide;
          values[i][v] = is_present ? static_cast<Acc>(loaded[r][i].values[v]) : Max::neutral();
          maximum = Max::combine(maximum, values[i][v]);
        }
      }
      maximum = reduce_in_group(Max{}, maximum, 32);
      maximum = __shfl_sync(0xffffffffu, maximum, 0);
      Acc own[kOwn];
#pragma unroll
      for (int v = 0; v < kOwn; ++v) own[v] = Sum::neutral();
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (lane + i * 32 < wide) {
#pragma unroll
          for (int v = 0; v < kOwn; ++v) {
            const Acc shifted = values[i][v] - maximum;
            const Acc power = exponential(shifted);
            own[v] = Sum::combine(own[v], power);
            values[i][v] = logarithm ? shifted : power;
          }
        }
      }
      const RowEnd<Acc> end(logarithm, sum_neighbour_accumulators(own));
      auto* out = reinterpret_cast<Vector*>(static_cast<T*>(plan.out.data) +
                                            plan.out.outer.offset(first + r));
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (lane + i * 32 < wide) {
          Vector result;
#pragma unroll
          for (int v = 0; v < kOwn; ++v) result.values[v] = from_accumulator<T>(end(values[i][v]));
          out[lane + i * 32] = result;
        }
      }
    }
  }
}

// One warp per row of at most 32 * kMost elements, which stay in registers.
template <class T, int kMost>
__global__ void __launch_bounds__(kThreads)
    softmax_short_rows(const __grid_constant__ FibrePlan plan, bool logarithm) {
  using Acc = AccumulatorType<T>;
  using Max = SoftmaxMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int count = static_cast<int>(plan.length);
  const int warps_per_block = static_cast<int>(blockDim.x) / 32;
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * warps_per_block;
  const std::int64_t own_warp =
      static_cast<std::int64_t>(blockIdx.x) * warps_per_block + threadIdx.x / 32;
  // The condition is uniform in a warp, so its shuffles have all threads.
  for (std::int64_t fibre = own_warp; fibre < plan.count; fibre += warps) {
    const T* in = static_cast<const T*>(plan.in.data) + plan.in.outer.offset(fibre);
    T* out = static_cast<T*>(plan.out.data) + plan.out.outer.offset(fibre);
    Acc values[kMost];
    Acc maximum = Max::neutral();
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int k = lane + i * 32;
      values[i] = k < count ? static_cast<Acc>(in[k * plan.in.stride]) : Max::neutral();
    }
#pragma unroll
    for (int i = 0; i < kMost; ++i) maximum = Max::combine(maximum, values[i]);
    maximum = reduce_in_group(Max{}, maximum, 32);
    maximum = __shfl_sync(0xffffffffu, maximum, 0);
    Acc own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = Sum::neutral();
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (lane + i * 32 < count) {
        const Acc shifted = values[i] - maximum;
        const Acc power = exponential(shifted);
        own[i % kOwn] = Sum::combine(own[i % kOwn], power);
        values[i] = logarithm ? shifted : power;
      }
    }
    Acc sum = combine_warp_accumulators(Sum{}, own, 32);
    sum = __shfl_sync(0xffffffffu, sum, 0);
    const RowEnd<Acc> end(logarithm, sum);
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int k = lane + i * 32;
      if (k < count) out[k * plan.out.stride] = from_accumulator<T>(end(values[i]));
    }
  }
}

// Fewest rows that fill a GPU with blocks of eight warps; fewer are spread over smaller blocks.
constexpr std::int64_t kManyRows = 8192;

template <class T, int kVectors, int kRows>
void launch_wide_short_rows(void* stream, bool logarithm, const FibrePlan& plan, int warps) {
  const std::int64_t tasks = (plan.count + kRows - 1) / kRows;
  launch("softmax_short_rows", stream, blocks_for((tasks + warps - 1) / warps * kThreads),
         warps * 32, 0, softmax_wide_short_rows<T, kVectors, kRows>, plan, logarithm);
}

template <class T, int kMost>
void launch_short_rows(void* stream, bool logarithm, const FibrePlan& plan) {
  const int warps = plan.count < kManyRows ? 2 : kThreads / 32;
  if constexpr (sizeof(T) <= 4) {
    if (has_wide_rows<T, kOwn>(plan.in, plan.length) &&
        has_wide_rows<T, kOwn>(plan.out, plan.length)) {
      constexpr int kVectors = kMost / kOwn;
      if (plan.count < kManyRows) {
        launch_wide_short_rows<T, kVectors, 1>(stream, logarithm, plan, warps);
      } else {
        launch_wide_short_rows<T, kVectors, kVectors == 1 ? 4 : 1>(stream, logarithm, plan, warps);
      }
      return;
    }
  }
  launch("softmax_short_rows", stream, blocks_for((plan.count + warps - 1) / warps * kThreads),
         warps * 32, 0, softmax_short_rows<T, kMost>, plan, logarithm);
}

}  // namespace

}  // namespace gantry::kernels::cuda
