// Softmax of rows of at most 1024 elements: lanes of a warp have a row in their registers.
#pragma once

#include "kernels/cuda/softmax/softmax_row.cuh"

namespace gantry::kernels::cuda {

namespace {

constexpr int kShortRow = 1024;
constexpr int kOwn = 4;

// The tree over the accumulators of a row that kLanes lanes share: lane l has those from
// 4 (l + kLanes j) to 4 (l + kLanes j) + 3 as own[j]. Lanes share the work: of each pair that a
// step combines, either lane goes on with half of the accumulators. Sums do not depend on the order
// of two operands, so every lane gets the result.
template <int kLanes, class Acc, int kParts>
__device__ Acc sum_row_accumulators(Acc (&own)[kParts][kOwn], int lane) {
  using Sum = SoftmaxSum<Acc>;
  constexpr unsigned kAll = 0xffffffffu;
  static_assert(kParts == 1 || kParts == 2 || kParts == 4);
  const auto combine_parts = [&](int to, int from) {
#pragma unroll
    for (int v = 0; v < kOwn; ++v) own[to][v] = Sum::combine(own[to][v], own[from][v]);
  };
  if constexpr (kParts == 4) {
    combine_parts(0, 2);
    combine_parts(1, 3);
  }
  if constexpr (kParts >= 2) combine_parts(0, 1);
  const bool high = (lane & kLanes / 2) != 0;
  const bool odd = (lane & kLanes / 4) != 0;
  const Acc first = Sum::combine(high ? own[0][2] : own[0][0],
                                 __shfl_xor_sync(kAll, high ? own[0][0] : own[0][2], kLanes / 2));
  const Acc second = Sum::combine(high ? own[0][3] : own[0][1],
                                  __shfl_xor_sync(kAll, high ? own[0][1] : own[0][3], kLanes / 2));
  Acc result =
      Sum::combine(odd ? second : first, __shfl_xor_sync(kAll, odd ? first : second, kLanes / 4));
#pragma unroll
  for (int distance = kLanes / 8; distance > 0; distance /= 2) {
    result = Sum::combine(result, __shfl_xor_sync(kAll, result, distance));
  }
  result = Sum::combine(result, __shfl_xor_sync(kAll, result, kLanes / 2));
  return Sum::combine(result, __shfl_xor_sync(kAll, result, kLanes / 4));
}

// kLanes lanes take a row of at most 4 kLanes kVectors elements, a warp several rows. A lane has
// four neighbouring elements of each 4 kLanes. There are threads for all rows.
//
// Absent elements are -inf, whose exponential 0 changes no sum: one summand is 1, or all is NaN.
template <class T, int kLanes, int kVectors, bool kLogarithm>
__global__ void __launch_bounds__(kThreads, kVectors > 4 ? 3 : 4)
    softmax_wide_short_rows(const __grid_constant__ FibrePlan plan) {
  using Acc = AccumulatorType<T>;
  using Max = RowMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  using Vector = StoredPack<T, kOwn>;
  using Values = StoredPack<Acc, kOwn>;
  constexpr int kMostParts = kAccumulators / (kOwn * kLanes);
  constexpr int kParts = kVectors < kMostParts ? kVectors : kMostParts;
  const int begin = static_cast<int>(threadIdx.x) % kLanes;
  const int wide = static_cast<int>(plan.length) / kOwn;
  const std::int64_t row =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kLanes;
  // All threads of a warp take part in its shuffles: those beyond the rows read the last one.
  const std::int64_t read = row < plan.count ? row : plan.count - 1;
  const auto* in = reinterpret_cast<const Vector*>(static_cast<const T*>(plan.in.data) +
                                                   near_offset(plan.in.outer, read));
  Vector loaded[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int v = 0; v < kOwn; ++v) loaded[i].values[v] = from_accumulator<T>(Max::neutral());
    if (begin + i * kLanes < wide) loaded[i] = in[begin + i * kLanes];
  }
  Values values[kVectors];
  Acc maximum = Max::neutral();
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int v = 0; v < kOwn; ++v) {
      values[i].values[v] = static_cast<Acc>(loaded[i].values[v]);
      maximum = Max::combine(maximum, values[i].values[v]);
    }
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    maximum = Max::combine(maximum, __shfl_xor_sync(0xffffffffu, maximum, distance));
  }
  Acc own[kParts][kOwn];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int v = 0; v < kOwn; ++v) {
      const Acc shifted = values[i].values[v] - maximum;
      const Acc power = exponential(shifted);
      Acc& sum = own[i % kParts][v];
      sum = i < kParts ? power : Sum::combine(sum, power);
      values[i].values[v] = kLogarithm ? shifted : power;
    }
  }
  const RowEnd<Acc> end(kLogarithm, sum_row_accumulators<kLanes>(own, begin));
  if (row >= plan.count) return;
  auto* out =
      reinterpret_cast<Vector*>(static_cast<T*>(plan.out.data) + near_offset(plan.out.outer, row));
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (begin + i * kLanes < wide) {
      end(values[i]);
      out[begin + i * kLanes] = stored_pack<T>(values[i]);
    }
  }
}

// kLanes lanes take a row of at most kLanes * kMost elements with any stride, a warp several rows.
// A lane has every element kLanes after another one. There are threads for all rows.
template <class T, int kLanes, int kMost>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 8 ? 2
                                            : kMost > 8    ? 3
                                                           : 4)
    softmax_short_rows(const __grid_constant__ FibrePlan plan, bool logarithm) {
  using Acc = AccumulatorType<T>;
  using Max = RowMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  constexpr int kMostParts = kAccumulators / kLanes;
  constexpr int kParts = kMost < kMostParts ? kMost : kMostParts;
  constexpr int kPack = 8;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int count = static_cast<int>(plan.length);
  const std::int64_t row =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kLanes;
  // All threads of a warp take part in its shuffles: those beyond the rows read the last one.
  const std::int64_t read = row < plan.count ? row : plan.count - 1;
  const T* in = static_cast<const T*>(plan.in.data) + near_offset(plan.in.outer, read);
  Acc values[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int k = lane + i * kLanes;
    values[i] = k < count ? static_cast<Acc>(in[k * plan.in.stride]) : Max::neutral();
  }
  Acc maximum = values[0];
#pragma unroll
  for (int i = 1; i < kMost; ++i) maximum = Max::combine(maximum, values[i]);
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    maximum = Max::combine(maximum, __shfl_xor_sync(0xffffffffu, maximum, distance));
  }
  // The exponential of an absent element is 0, which changes no sum.
  Acc own[kParts];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const Acc shifted = values[i] - maximum;
    const Acc power = exponential(shifted);
    own[i % kParts] = i < kParts ? power : Sum::combine(own[i % kParts], power);
    values[i] = logarithm ? shifted : power;
  }
  combine_own<kParts / 2>(Sum{}, own);
  Acc sum = own[0];
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    sum = Sum::combine(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
  }
  const RowEnd<Acc> end(logarithm, sum);
  if (row >= plan.count) return;
  T* out = static_cast<T*>(plan.out.data) + near_offset(plan.out.outer, row);
#pragma unroll
  for (int first = 0; first < kMost; first += kPack) {
    StoredPack<Acc, kPack> pack;
#pragma unroll
    for (int i = 0; i < kPack; ++i) pack.values[i] = values[first + i];
    end(pack);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const int k = lane + (first + i) * kLanes;
      if (k < count) out[k * plan.out.stride] = stored<T>(pack.values[i]);
    }
  }
}

// Fewest warps that fill a GPU in blocks of eight; fewer are spread over smaller blocks.
constexpr std::int64_t kManyWarps = 8192;

// Launches a kernel of kLanes threads a row.
template <int kLanes, class Kernel, class... Arguments>
void launch_lanes(void* stream, const FibrePlan& plan, Kernel kernel, Arguments... arguments) {
  const std::int64_t threads = plan.count * kLanes;
  const int per_block = threads < kManyWarps * 32 ? 64 : kThreads;
  launch("softmax_short_rows", stream, static_cast<unsigned>((threads + per_block - 1) / per_block),
         per_block, 0, kernel, plan, arguments...);
}

template <class T, int kLanes, int kVectors>
void launch_wide_short_rows(void* stream, bool logarithm, const FibrePlan& plan) {
  launch_lanes<kLanes>(stream, plan,
                       logarithm ? softmax_wide_short_rows<T, kLanes, kVectors, true>
                                 : softmax_wide_short_rows<T, kLanes, kVectors, false>);
}

template <class T, int kLanes, int kMost>
void launch_narrow_short_rows(void* stream, bool logarithm, const FibrePlan& plan) {
  launch_lanes<kLanes>(stream, plan, softmax_short_rows<T, kLanes, kMost>, logarithm);
}

template <class T>
void launch_short_rows(void* stream, bool logarithm, const FibrePlan& plan) {
  if constexpr (sizeof(T) <= 4) {
    if (has_wide_rows<T, kOwn>(plan.in, plan.length) &&
        has_wide_rows<T, kOwn>(plan.out, plan.length)) {
      if (plan.length <= 32) return launch_wide_short_rows<T, 8, 1>(stream, logarithm, plan);
      if (plan.length <= 64) return launch_wide_short_rows<T, 8, 2>(stream, logarithm, plan);
      if (plan.length <= 128) return launch_wide_short_rows<T, 8, 4>(stream, logarithm, plan);
      if (plan.length <= 256) return launch_wide_short_rows<T, 16, 4>(stream, logarithm, plan);
      // Narrow elements take little memory: fewer lanes have less work in common.
      constexpr int kLanes = sizeof(T) == 2 ? 16 : 32;
      if (plan.length <= 512) {
        return launch_wide_short_rows<T, kLanes, 128 / kLanes>(stream, logarithm, plan);
      }
      return launch_wide_short_rows<T, 32, 8>(stream, logarithm, plan);
    }
  }
  if (plan.length <= 64) return launch_narrow_short_rows<T, 8, 8>(stream, logarithm, plan);
  if (plan.length <= 128) return launch_narrow_short_rows<T, 16, 8>(stream, logarithm, plan);
  if (plan.length <= 256) return launch_narrow_short_rows<T, 32, 8>(stream, logarithm, plan);
  if (plan.length <= 512) return launch_narrow_short_rows<T, 32, 16>(stream, logarithm, plan);
  launch_narrow_short_rows<T, 32, 32>(stream, logarithm, plan);
}

}  // namespace

}  // namespace gantry::kernels::cuda
