// Softmax of many neighbouring columns: a block has 32 of them.
#pragma once

#include "kernels/cuda/softmax/softmax_row.cuh"

namespace gantry::kernels::cuda {

namespace {

constexpr int kColumns = 32;
constexpr int kColumnThreads = 8;

// One block of 32 x 8 threads per 32 neighbouring fibres of at most one chunk.
template <class T>
__global__ void __launch_bounds__(kColumns* kColumnThreads)
    softmax_columns(const __grid_constant__ FibrePlan plan, bool logarithm) {
  using Acc = AccumulatorType<T>;
  using Max = SoftmaxMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  constexpr int kColumnOwn = kAccumulators / kColumnThreads;
  __shared__ Acc shared[kColumnThreads][kColumns];
  __shared__ Acc results[kColumns];
  const std::int64_t tiles = (plan.count + kColumns - 1) / kColumns;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t fibre = tile * kColumns + threadIdx.x;
    const bool is_present = fibre < plan.count;
    const int count = is_present ? static_cast<int>(plan.length) : 0;
    const T* in = static_cast<const T*>(plan.in.data);
    T* out = static_cast<T*>(plan.out.data);
    if (is_present) {
      in += plan.in.outer.offset(fibre);
      out += plan.out.outer.offset(fibre);
    }
    const auto combined = [&](const auto& reducer, Acc(&own)[kColumnOwn]) {
      const Acc result = combine_column_accumulators(
          reducer, own, shared, static_cast<int>(threadIdx.x), static_cast<int>(threadIdx.y));
      if (threadIdx.y == 0) results[threadIdx.x] = result;
      __syncthreads();
      return results[threadIdx.x];
    };
    Acc own[kColumnOwn];
#pragma unroll
    for (int i = 0; i < kColumnOwn; ++i) own[i] = Max::neutral();
    for (int k = static_cast<int>(threadIdx.y); k < count; k += kAccumulators) {
#pragma unroll
      for (int i = 0; i < kColumnOwn; ++i) {
        const std::int64_t at = k + i * kColumnThreads;
        if (at < count) own[i] = Max::combine(own[i], static_cast<Acc>(in[at * plan.in.stride]));
      }
    }
    const Acc maximum = combined(Max{}, own);
#pragma unroll
    for (int i = 0; i < kColumnOwn; ++i) own[i] = Sum::neutral();
    for (int k = static_cast<int>(threadIdx.y); k < count; k += kAccumulators) {
#pragma unroll
      for (int i = 0; i < kColumnOwn; ++i) {
        const std::int64_t at = k + i * kColumnThreads;
        if (at < count) {
          own[i] = Sum::combine(own[i],
                                exponential(static_cast<Acc>(in[at * plan.in.stride]) - maximum));
        }
      }
    }
    const Acc sum = combined(Sum{}, own);
    const Acc tail = logarithm ? natural_logarithm(sum) : sum;
    for (std::int64_t k = threadIdx.y; k < count; k += kColumnThreads) {
      const Acc x = static_cast<Acc>(in[k * plan.in.stride]);
      out[k * plan.out.stride] = from_accumulator<T>(softmax_element(logarithm, x, maximum, tail));
    }
  }
}

template <class T>
void launch_columns(void* stream, bool logarithm, const FibrePlan& plan) {
  const std::int64_t tiles = (plan.count + kColumns - 1) / kColumns;
  launch("softmax_columns", stream, blocks_for(tiles * kThreads), dim3(kColumns, kColumnThreads), 0,
         softmax_columns<T>, plan, logarithm);
}

}  // namespace

}  // namespace gantry::kernels::cuda
