#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reductions/accumulators.cuh"
#include "kernels/fibre_plan.hpp"
#include "kernels/impl/softmax.inl"

namespace gantry::kernels::cuda {

namespace {

constexpr int kAccumulators = kReduceAccumulators;
constexpr int kShortRow = 1024;
constexpr int kOwn = 4;
constexpr int kColumns = 32;
constexpr int kColumnThreads = 8;

// One warp per row of at most kShortRow elements, which stay in registers.
template <class T>
__global__ void __launch_bounds__(kThreads)
    softmax_short_rows(const __grid_constant__ FibrePlan plan, bool logarithm) {
  using Acc = AccumulatorType<T>;
  using Max = SoftmaxMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  constexpr int kMost = kShortRow / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int count = static_cast<int>(plan.length);
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kThreads / 32);
  // The condition is uniform in a warp, so its shuffles have all threads.
  for (std::int64_t fibre = first_index() / 32; fibre < plan.count; fibre += warps) {
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
    const Acc tail = logarithm ? natural_logarithm(sum) : sum;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int k = lane + i * 32;
      if (k < count) {
        out[k * plan.out.stride] =
            from_accumulator<T>(logarithm ? values[i] - tail : values[i] / tail);
      }
    }
  }
}

// Cascaded sum of one fibre's chunk results, in the order of Note [Reduction order]. Thread t has
// accumulator t of each level. A chunk of a level is complete after 16384 results of the level
// below.
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
    const Acc result = combine_block_accumulators(Sum{}, accumulators_[level]);
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

// One block of 128 threads, one per accumulator, per row of any length and stride.
template <class T>
__global__ void __launch_bounds__(kAccumulators)
    softmax_rows(const __grid_constant__ FibrePlan plan, bool logarithm) {
  using Acc = AccumulatorType<T>;
  using Max = SoftmaxMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  __shared__ Acc broadcast;
  for (std::int64_t fibre = blockIdx.x; fibre < plan.count; fibre += gridDim.x) {
    const T* in = static_cast<const T*>(plan.in.data) + plan.in.outer.offset(fibre);
    T* out = static_cast<T*>(plan.out.data) + plan.out.outer.offset(fibre);
    Acc maximum = Max::neutral();
#pragma unroll 8
    for (std::int64_t k = threadIdx.x; k < plan.length; k += kAccumulators) {
      maximum = Max::combine(maximum, static_cast<Acc>(in[k * plan.in.stride]));
    }
    maximum = combine_block_accumulators(Max{}, maximum);
    if (threadIdx.x == 0) broadcast = maximum;
    __syncthreads();
    maximum = broadcast;
    CascadeSum<Acc> cascade;
    Acc sum = Sum::neutral();
    for (std::int64_t first = 0; first < plan.length; first += kReduceChunk) {
      const std::int64_t end =
          first + kReduceChunk < plan.length ? first + kReduceChunk : plan.length;
      Acc accumulator = Sum::neutral();
#pragma unroll 4
      for (std::int64_t k = first + threadIdx.x; k < end; k += kAccumulators) {
        accumulator = Sum::combine(accumulator,
                                   exponential(static_cast<Acc>(in[k * plan.in.stride]) - maximum));
      }
      sum = combine_block_accumulators(Sum{}, accumulator);
      if (threadIdx.x == 0) broadcast = sum;
      __syncthreads();
      sum = broadcast;
      if (plan.length > kReduceChunk) cascade.push(sum);
    }
    if (plan.length > kReduceChunk) sum = cascade.finish();
    const Acc tail = logarithm ? natural_logarithm(sum) : sum;
#pragma unroll 4
    for (std::int64_t k = threadIdx.x; k < plan.length; k += kAccumulators) {
      const Acc x = static_cast<Acc>(in[k * plan.in.stride]);
      out[k * plan.out.stride] = from_accumulator<T>(softmax_element(logarithm, x, maximum, tail));
    }
    __syncthreads();
  }
}

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

}  // namespace

void softmax(void* stream, bool logarithm, const FibrePlan& plan) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<T>)) {
      if (plan.is_column_wise() && plan.count >= 8 && plan.length <= kReduceChunk) {
        const std::int64_t tiles = (plan.count + kColumns - 1) / kColumns;
        launch("softmax_columns", stream, blocks_for(tiles * kThreads),
               dim3(kColumns, kColumnThreads), 0, softmax_columns<T>, plan, logarithm);
      } else if (plan.length <= kShortRow) {
        launch("softmax_short_rows", stream, blocks_for(plan.count * 32), kThreads, 0,
               softmax_short_rows<T>, plan, logarithm);
      } else {
        launch("softmax_rows", stream, blocks_for(plan.count * kThreads), kAccumulators, 0,
               softmax_rows<T>, plan, logarithm);
      }
    }
  });
}

}  // namespace gantry::kernels::cuda
