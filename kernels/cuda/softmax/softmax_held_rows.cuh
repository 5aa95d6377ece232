// Softmax of rows of a few thousand elements: a block has a row in its shared memory.
#pragma once

#include "kernels/cuda/softmax/softmax_row.cuh"

namespace gantry::kernels::cuda {

namespace {

// Longest row that shared memory holds: 64 KiB, which every supported GPU has.
template <class T>
constexpr std::int64_t kHeldRow = (64 << 10) /
                                  static_cast<std::int64_t>(sizeof(AccumulatorType<T>));
static_assert(kHeldRow<float> <= kReduceChunk);

// One block of 128 threads, one per accumulator, per row of at most one chunk. The row stays in
// shared memory: it is read once. kIsWide: has_wide_rows() of both operands.
template <class T, bool kIsWide>
__global__ void __launch_bounds__(kAccumulators, 6)
    softmax_held_rows(const __grid_constant__ FibrePlan plan, bool logarithm) {
  using Acc = AccumulatorType<T>;
  using Max = RowMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  constexpr int V = kWide<T>;
  using Vector = StoredPack<T, V>;
  using Row = StoredPack<Acc, V>;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Acc broadcast;
  Acc* const row = reinterpret_cast<Acc*>(memory);
  const int thread = static_cast<int>(threadIdx.x);
  const int count = static_cast<int>(plan.length);
  const auto to_all = [&](Acc value) {
    if (thread == 0) broadcast = value;
    __syncthreads();
    return broadcast;
  };
  for (std::int64_t fibre = blockIdx.x; fibre < plan.count; fibre += gridDim.x) {
    const T* in = static_cast<const T*>(plan.in.data) + near_offset(plan.in.outer, fibre);
    T* out = static_cast<T*>(plan.out.data) + near_offset(plan.out.outer, fibre);
    Acc maximum = Max::neutral();
    if constexpr (kIsWide) {
      const auto* vectors = reinterpret_cast<const Vector*>(in);
      auto* rows = reinterpret_cast<Row*>(row);
      const auto take = [&](int at, const Vector& vector) {
        Row values;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          values.values[v] = static_cast<Acc>(vector.values[v]);
          maximum = Max::combine(maximum, values.values[v]);
        }
        rows[at] = values;
      };
      const int wide = count / V;
      int at = thread;
      for (; at + (kWideInFlight - 1) * kAccumulators < wide; at += kWideInFlight * kAccumulators) {
        Vector batch[kWideInFlight];
#pragma unroll
        for (int i = 0; i < kWideInFlight; ++i) batch[i] = vectors[at + i * kAccumulators];
#pragma unroll
        for (int i = 0; i < kWideInFlight; ++i) take(at + i * kAccumulators, batch[i]);
      }
#pragma unroll 4
      for (; at < wide; at += kAccumulators) take(at, vectors[at]);
    } else {
#pragma unroll 8
      for (int k = thread; k < count; k += kAccumulators) {
        const Acc value = static_cast<Acc>(in[k * plan.in.stride]);
        maximum = Max::combine(maximum, value);
        row[k] = value;
      }
    }
    // Its barriers also end the writes to the row.
    maximum = to_all(combine_block_accumulators(Max{}, maximum));
    Acc accumulator = Sum::neutral();
#pragma unroll 8
    for (int k = thread; k < count; k += kAccumulators) {
      const Acc shifted = row[k] - maximum;
      const Acc power = exponential(shifted);
      accumulator = Sum::combine(accumulator, power);
      row[k] = logarithm ? shifted : power;
    }
    const Acc sum = to_all(combine_block_accumulators(Sum{}, accumulator));
    const RowEnd<Acc> end(logarithm, sum);
    if constexpr (kIsWide) {
      auto* vectors = reinterpret_cast<Vector*>(out);
      const auto* rows = reinterpret_cast<const Row*>(row);
#pragma unroll 4
      for (int at = thread; at < count / V; at += kAccumulators) {
        Row values = rows[at];
        end(values);
        vectors[at] = stored_pack<T>(values);
      }
    } else {
#pragma unroll 4
      for (int k = thread; k < count; k += kAccumulators)
        out[k * plan.out.stride] = stored<T>(end(row[k]));
    }
    __syncthreads();  // the next row overwrites this one
  }
}

template <class T>
void launch_held_rows(void* stream, bool logarithm, const FibrePlan& plan) {
  const bool is_wide = has_wide_rows<T, kWide<T>>(plan.in, plan.length) &&
                       has_wide_rows<T, kWide<T>>(plan.out, plan.length);
  const auto kernel = is_wide ? softmax_held_rows<T, true> : softmax_held_rows<T, false>;
  constexpr int kPlainBytes = 48 << 10;  // of shared memory, without leave
  constexpr int kMostBytes = static_cast<int>(kHeldRow<T> * sizeof(AccumulatorType<T>));
  const std::size_t bytes = static_cast<std::size_t>(plan.length) * sizeof(AccumulatorType<T>);
  if (bytes > kPlainBytes) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostBytes);
    if (status != cudaSuccess) {
      (void)cudaGetLastError();
      throw_launch_error("softmax_held_rows", stream, status);
    }
  }
  launch("softmax_held_rows", stream, blocks_for(plan.count * kThreads), kAccumulators, bytes,
         kernel, plan, logarithm);
}

}  // namespace

}  // namespace gantry::kernels::cuda
