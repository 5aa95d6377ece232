// Softmax of a few neighbouring columns: a block has them all.
#pragma once

#include "kernels/cuda/softmax/softmax_row.cuh"

namespace gantry::kernels::cuda {

namespace {

// Most columns of a slab: neighbouring ones, as many as the innermost of the other dims has.
constexpr int kMostSlabColumns = 31;
constexpr int kMostSlabThreads = 512;
// Elements of each thread in flight.
constexpr int kSlabBatch = 8;

// Combines the accumulators of a slab's columns: thread (c, part) has the accumulators part,
// part + kParts, … of column c. The result of the thread's column, in every thread of a column.
template <int kParts, class R, class Acc, int kOwnSlab>
__device__ Acc combine_slab(const R& reducer, Acc (&own)[kOwnSlab], Acc* shared, int columns, int c,
                            int part) {
  static_assert(kParts * kOwnSlab == kAccumulators);
  constexpr int kLast = 8;  // parts that one thread combines at the end
  combine_own<kOwnSlab / 2>(reducer, own);
  __syncthreads();  // the previous call has read
  if (part < kParts) shared[part * columns + c] = own[0];
  __syncthreads();
  Acc values[kParts / kLast];
  if (part < kLast) {
#pragma unroll
    for (int i = 0; i < kParts / kLast; ++i) values[i] = shared[(part + i * kLast) * columns + c];
    combine_own<kParts / kLast / 2>(reducer, values);
    shared[part * columns + c] = values[0];
  }
  __syncthreads();
  Acc last[kLast];
#pragma unroll
  for (int i = 0; i < kLast; ++i) last[i] = shared[i * columns + c];
  combine_own<kLast / 2>(reducer, last);
  return last[0];
}

// A block per slab of `columns` fibres of at most one chunk. Its threads are kParts for each
// column; the rest of the last warp has no work.
template <class T, int kParts>
__global__ void __launch_bounds__(kMostSlabThreads, sizeof(T) == 8 ? 1 : 2)
    softmax_slabs(const __grid_constant__ FibrePlan plan, int columns, bool logarithm) {
  using Acc = AccumulatorType<T>;
  using Max = RowMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  constexpr int kOwnSlab = kAccumulators / kParts;
  static_assert(kSlabBatch % kOwnSlab == 0);
  __shared__ Acc shared[kMostSlabThreads];
  const int part = static_cast<int>(threadIdx.x) / columns;
  const int c = static_cast<int>(threadIdx.x) - part * columns;
  const int count = part < kParts ? static_cast<int>(plan.length) : 0;
  const std::int64_t slabs = plan.count / columns;
  for (std::int64_t slab = blockIdx.x; slab < slabs; slab += gridDim.x) {
    const T* in = static_cast<const T*>(plan.in.data) + near_offset(plan.in.outer, slab * columns) +
                  c * plan.in.outer.strides[plan.in.outer.ndim - 1];
    T* out = static_cast<T*>(plan.out.data) + near_offset(plan.out.outer, slab * columns) +
             c * plan.out.outer.strides[plan.out.outer.ndim - 1];
    // Calls f(i, k, element k) for the thread's elements, i elements of a batch, in order.
    const auto for_each_element = [&](const auto& f) {
      for (int first = part; first < count; first += kSlabBatch * kParts) {
        T batch[kSlabBatch];
#pragma unroll
        for (int i = 0; i < kSlabBatch; ++i) {
          const int k = first + i * kParts;
          if (k < count) batch[i] = in[k * plan.in.stride];
        }
#pragma unroll
        for (int i = 0; i < kSlabBatch; ++i) {
          const int k = first + i * kParts;
          if (k < count) f(i, k, static_cast<Acc>(batch[i]));
        }
      }
    };
    Acc own[kOwnSlab];
#pragma unroll
    for (Acc& maximum : own) maximum = Max::neutral();
    for_each_element(
        [&](int i, int, Acc x) { own[i % kOwnSlab] = Max::combine(own[i % kOwnSlab], x); });
    const Acc maximum = combine_slab<kParts>(Max{}, own, shared, columns, c, part);
#pragma unroll
    for (Acc& sum : own) sum = Sum::neutral();
    for_each_element([&](int i, int, Acc x) {
      own[i % kOwnSlab] = Sum::combine(own[i % kOwnSlab], exponential(x - maximum));
    });
    const RowEnd<Acc> end(logarithm, combine_slab<kParts>(Sum{}, own, shared, columns, c, part));
    for (int first = part; first < count; first += kSlabBatch * kParts) {
      StoredPack<Acc, kSlabBatch> values;
#pragma unroll
      for (int i = 0; i < kSlabBatch; ++i) {
        const int k = first + i * kParts;
        values.values[i] = k < count ? static_cast<Acc>(in[k * plan.in.stride]) : maximum;
      }
#pragma unroll
      for (int i = 0; i < kSlabBatch; ++i) {
        values.values[i] -= maximum;
        if (!logarithm) values.values[i] = exponential(values.values[i]);
      }
      end(values);
#pragma unroll
      for (int i = 0; i < kSlabBatch; ++i) {
        const int k = first + i * kParts;
        if (k < count) out[k * plan.out.stride] = stored<T>(values.values[i]);
      }
    }
  }
}

template <class T>
void launch_slabs(void* stream, bool logarithm, const FibrePlan& plan, int columns) {
  const auto run = [&](auto kernel, int parts) {
    launch("softmax_slabs", stream, blocks_for(plan.count / columns * kThreads),
           (columns * parts + 31) / 32 * 32, 0, kernel, plan, columns, logarithm);
  };
  if (columns <= 8) return run(softmax_slabs<T, 64>, 64);
  if (columns <= 16) return run(softmax_slabs<T, 32>, 32);
  run(softmax_slabs<T, 16>, 16);
}

}  // namespace

}  // namespace gantry::kernels::cuda
