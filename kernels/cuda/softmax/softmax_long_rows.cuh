// Softmax of many long rows: a block has a part of a row in its shared memory.
#pragma once

#include "kernels/cuda/softmax/softmax_row.cuh"

namespace gantry::kernels::cuda {

namespace {

// Threads of a block of softmax_long_rows: each group of 128 has the accumulators of a chunk.
constexpr int kGroups = 4;
constexpr int kLongThreads = kGroups * kAccumulators;

// The tree over the accumulators of each group. Every thread of the block calls; the threads of a
// group's first warp get a result; the first thread's is right.
template <class R, class Acc>
__device__ Acc combine_group_accumulators(const R& reducer, Acc accumulator) {
  __shared__ Acc accumulators[kLongThreads];
  __syncthreads();  // the previous call may still read the shared array
  accumulators[threadIdx.x] = accumulator;
  __syncthreads();
  const int t = static_cast<int>(threadIdx.x) % kAccumulators;
  if (t >= 32) return accumulator;
  const Acc* group = accumulators + (threadIdx.x - t);
  const Acc own[4] = {group[t], group[t + 32], group[t + 64], group[t + 96]};
  return combine_warp_accumulators(reducer, own, 32);
}

// Cascaded sum of one fibre's chunk results, in the order of Note [Reduction order]. Thread t of
// the first group has accumulator t of each level. A chunk of a level is complete after 16384
// results of the level below.
template <class Acc>
class CascadeSum {
 public:
  // Adds a chunk result. Every thread of the block calls, with the same value.
  __device__ void push(Acc result) { push_to(accumulators_[0], counts_[0], 0, result); }

  // The sum of the fibre, in every thread.
  __device__ Acc finish() {
    Acc total = level_total(0);
    if (counts_[1] > 0) {
      if (counts_[0] > 0) push_to(accumulators_[1], counts_[1], 1, total);
      total = level_total(1);
    }
    return total;
  }

 private:
  using Sum = SoftmaxSum<Acc>;

  __device__ Acc level_total(int level) {
    __shared__ Acc total;
    const Acc result = combine_group_accumulators(Sum{}, accumulators_[level]);
    if (threadIdx.x == 0) total = result;
    __syncthreads();
    return total;
  }

  __device__ void push_to(Acc& accumulator, std::int64_t& count, int level, Acc result) {
    if (static_cast<int>(threadIdx.x) == count % kAccumulators)
      accumulator = Sum::combine(accumulator, result);
    ++count;
    if (level == 0 && count == kReduceChunk) {
      const Acc total = level_total(0);
      accumulator = Sum::neutral();
      count = 0;
      push_to(accumulators_[1], counts_[1], 1, total);
    }
  }

  Acc accumulators_[2] = {Sum::neutral(), Sum::neutral()};
  std::int64_t counts_[2] = {0, 0};
};

// One block per row of any length and stride. Its groups sum as many chunks at a time. The first
// `held` elements stay in shared memory; the others are read again. kIsWide: has_wide_rows() of
// both operands, and `held` is a multiple of a wide access.
template <class T, bool kIsWide>
__global__ void __launch_bounds__(kLongThreads, 2)
    softmax_long_rows(const __grid_constant__ FibrePlan plan, bool logarithm, int held) {
  using Acc = AccumulatorType<T>;
  using Max = RowMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  constexpr int V = kWide<T>;
  using Vector = StoredPack<T, V>;
  // Shared memory of the accumulator's type keeps the exponentials.
  constexpr bool kKeepsPowers = std::is_same_v<T, Acc>;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Acc group_results[kGroups];
  T* const row = reinterpret_cast<T*>(memory);
  const int group = static_cast<int>(threadIdx.x) / kAccumulators;
  const int t = static_cast<int>(threadIdx.x) % kAccumulators;
  for (std::int64_t fibre = blockIdx.x; fibre < plan.count; fibre += gridDim.x) {
    const T* in = static_cast<const T*>(plan.in.data) + near_offset(plan.in.outer, fibre);
    T* out = static_cast<T*>(plan.out.data) + near_offset(plan.out.outer, fibre);
    // The results of the groups, in group_results. Every thread calls.
    const auto combine_groups = [&](const auto& reducer, Acc accumulator) {
      const Acc result = combine_group_accumulators(reducer, accumulator);
      if (t == 0) group_results[group] = result;
      __syncthreads();
    };
    Acc maximum = Max::neutral();
    if constexpr (kIsWide) {
      const auto* vectors = reinterpret_cast<const Vector*>(in);
      auto* rows = reinterpret_cast<Vector*>(row);
      const std::int64_t wide = plan.length / V;
      for (std::int64_t at = threadIdx.x; at < wide; at += kWideInFlight * kLongThreads) {
        Vector batch[kWideInFlight];
#pragma unroll
        for (int i = 0; i < kWideInFlight; ++i) {
          if (at + i * kLongThreads < wide) batch[i] = vectors[at + i * kLongThreads];
        }
#pragma unroll
        for (int i = 0; i < kWideInFlight; ++i) {
          if (at + i * kLongThreads < wide) {
#pragma unroll
            for (int v = 0; v < V; ++v)
              maximum = Max::combine(maximum, static_cast<Acc>(batch[i].values[v]));
            if ((at + i * kLongThreads) * V < held) rows[at + i * kLongThreads] = batch[i];
          }
        }
      }
    } else {
#pragma unroll 8
      for (std::int64_t k = threadIdx.x; k < plan.length; k += kLongThreads) {
        const T value = in[k * plan.in.stride];
        maximum = Max::combine(maximum, static_cast<Acc>(value));
        if (k < held) row[k] = value;
      }
    }
    // Its barriers also end the writes to the row.
    combine_groups(Max{}, maximum);
    maximum = group_results[0];
    for (int g = 1; g < kGroups; ++g) maximum = Max::combine(maximum, group_results[g]);
    CascadeSum<Acc> cascade;
    constexpr std::int64_t kRound = kGroups * kReduceChunk;
    for (std::int64_t round = 0; round < plan.length; round += kRound) {
      const std::int64_t first = round + group * kReduceChunk;
      const std::int64_t end =
          first + kReduceChunk < plan.length ? first + kReduceChunk : plan.length;
      const std::int64_t held_end = held < end ? held : end;
      Acc accumulator = Sum::neutral();
      std::int64_t k = first + t;
#pragma unroll 8
      for (; k < held_end; k += kAccumulators) {
        const Acc shifted = static_cast<Acc>(row[k]) - maximum;
        const Acc power = exponential(shifted);
        accumulator = Sum::combine(accumulator, power);
        if constexpr (kKeepsPowers) row[k] = logarithm ? shifted : power;
      }
#pragma unroll 8
      for (; k < end; k += kAccumulators) {
        accumulator = Sum::combine(accumulator,
                                   exponential(static_cast<Acc>(in[k * plan.in.stride]) - maximum));
      }
      combine_groups(Sum{}, accumulator);
      for (int g = 0; g < kGroups && round + g * kReduceChunk < plan.length; ++g)
        cascade.push(group_results[g]);
    }
    const RowEnd<Acc> end(logarithm, cascade.finish());
    const auto make_ready = [&](T value) {
      const Acc shifted = static_cast<Acc>(value) - maximum;
      return logarithm ? shifted : exponential(shifted);
    };
    if constexpr (kIsWide) {
      const auto* vectors = reinterpret_cast<const Vector*>(in);
      const auto* rows = reinterpret_cast<const Vector*>(row);
      auto* results = reinterpret_cast<Vector*>(out);
      const auto write = [&](std::int64_t at, const Vector& values, bool is_ready) {
        StoredPack<Acc, V> ready;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          ready.values[v] = is_ready && kKeepsPowers ? static_cast<Acc>(values.values[v])
                                                     : make_ready(values.values[v]);
        }
        end(ready);
        results[at] = stored_pack<T>(ready);
      };
      std::int64_t at = threadIdx.x;
#pragma unroll 2
      for (; at * V < held; at += kLongThreads) write(at, rows[at], true);
#pragma unroll 2
      for (; at < plan.length / V; at += kLongThreads) write(at, vectors[at], false);
    } else {
      const auto write = [&](std::int64_t k, Acc ready) {
        out[k * plan.out.stride] = stored<T>(end(ready));
      };
      std::int64_t k = threadIdx.x;
#pragma unroll 4
      for (; k < held; k += kLongThreads)
        write(k, kKeepsPowers ? static_cast<Acc>(row[k]) : make_ready(row[k]));
#pragma unroll 4
      for (; k < plan.length; k += kLongThreads) write(k, make_ready(in[k * plan.in.stride]));
    }
    __syncthreads();  // the next row overwrites this one
  }
}

// Most bytes of a row that a block alone on a multiprocessor holds.
constexpr std::int64_t kHeldAlone = 220 << 10;

// Bytes of a row that softmax_long_rows holds: two blocks share a multiprocessor, but one holds a
// row of which two would leave too much to the cache.
std::int64_t held_bytes(void* stream, std::int64_t row_bytes) {
  constexpr std::int64_t kOfTwo = 108 << 10;
  constexpr std::int64_t kStatic = 7 << 10;  // of the kernel itself, and the system's
  const bool is_alone = row_bytes > 160 << 10 && row_bytes <= 320 << 10;
  int device = 0;
  int most = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw_launch_error("softmax_long_rows", stream, status);
  }
  const std::int64_t wanted = is_alone ? kHeldAlone : kOfTwo;
  const std::int64_t possible = most > kStatic ? most - kStatic : 0;
  const std::int64_t bytes = wanted < possible ? wanted : possible;
  return (bytes < row_bytes ? bytes : row_bytes) / 16 * 16;
}

template <class T>
void launch_long_rows(void* stream, bool logarithm, const FibrePlan& plan) {
  const bool is_wide = has_wide_rows<T, kWide<T>>(plan.in, plan.length) &&
                       has_wide_rows<T, kWide<T>>(plan.out, plan.length);
  const auto kernel = is_wide ? softmax_long_rows<T, true> : softmax_long_rows<T, false>;
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t bytes = held_bytes(stream, plan.length * kSize);
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw_launch_error("softmax_long_rows", stream, status);
  }
  launch("softmax_long_rows", stream, blocks_for(plan.count * kThreads), kLongThreads,
         static_cast<std::size_t>(bytes), kernel, plan, logarithm, static_cast<int>(bytes / kSize));
}

}  // namespace

}  // namespace gantry::kernels::cuda
