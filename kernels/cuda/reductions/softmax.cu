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

// What ends an element of a row: the difference to the logarithm of the sum, or the quotient by the
// sum, which is at least 1 (or NaN) and less than 2^15.
//
// Note [Quotients by one divisor]
// An f32 quotient is made from the divisor's reciprocal, which is rounded correctly. The first
// product is corrected twice by its exact remainder: then it is within an ulp, then rounded as a
// division rounds (Markstein's theorem). Remainders of tiny dividends are not exact: these are
// divided.
template <class Acc>
class RowEnd {
 public:
  __device__ RowEnd(bool logarithm, Acc sum)
      : logarithm_(logarithm),
        tail_(logarithm ? natural_logarithm(sum) : sum),
        reciprocal_(Acc(1) / sum) {}

  // `value` is x - maximum for logarithms, else its exponential.
  __device__ Acc operator()(Acc value) const {
    if (logarithm_) return value - tail_;
    if constexpr (std::is_same_v<Acc, float>) {
      if (value < 1e-30f && value > 0) return value / tail_;
      float quotient = value * reciprocal_;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float remainder = math::fma(-quotient, tail_, value);
        quotient = math::fma(remainder, reciprocal_, quotient);
      }
      return quotient;
    } else {
      return value / tail_;
    }
  }

 private:
  bool logarithm_;
  Acc tail_;
  Acc reciprocal_;
};

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

// Longest row that shared memory holds: 64 KiB, which every supported GPU has.
template <class T>
constexpr std::int64_t kHeldRow = (64 << 10) /
                                  static_cast<std::int64_t>(sizeof(AccumulatorType<T>));
static_assert(kHeldRow<float> <= kReduceChunk);

// Elements of a wide access of softmax_held_rows, and how many of them a thread has in flight.
template <class T>
constexpr int kWide = 16 / static_cast<int>(sizeof(T));
constexpr int kWideInFlight = 8;

// True if the rows are dense and begin and end on a multiple of a wide access.
template <class T>
bool has_wide_rows(const Fibres& rows, std::int64_t length) {
  if (rows.stride != 1 || length % kWide<T> != 0) return false;
  if (reinterpret_cast<std::uintptr_t>(rows.data) % 16 != 0) return false;
  for (int d = 0; d < rows.outer.ndim; ++d) {
    if (rows.outer.sizes[d] > 1 && rows.outer.strides[d] % kWide<T> != 0) return false;
  }
  return true;
}

// One block of 128 threads, one per accumulator, per row of at most one chunk. The row stays in
// shared memory: it is read once. kIsWide: has_wide_rows() of both operands.
template <class T, bool kIsWide>
__global__ void __launch_bounds__(kAccumulators, 6)
    softmax_held_rows(const __grid_constant__ FibrePlan plan, bool logarithm) {
  using Acc = AccumulatorType<T>;
  using Max = SoftmaxMax<Acc>;
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
    const T* in = static_cast<const T*>(plan.in.data) + plan.in.outer.offset(fibre);
    T* out = static_cast<T*>(plan.out.data) + plan.out.outer.offset(fibre);
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
    const auto result = [&](Acc value) { return from_accumulator<T>(end(value)); };
    if constexpr (kIsWide) {
      auto* vectors = reinterpret_cast<Vector*>(out);
      const auto* rows = reinterpret_cast<const Row*>(row);
#pragma unroll 4
      for (int at = thread; at < count / V; at += kAccumulators) {
        const Row values = rows[at];
        Vector vector;
#pragma unroll
        for (int v = 0; v < V; ++v) vector.values[v] = result(values.values[v]);
        vectors[at] = vector;
      }
    } else {
#pragma unroll 4
      for (int k = thread; k < count; k += kAccumulators) out[k * plan.out.stride] = result(row[k]);
    }
    __syncthreads();  // the next row overwrites this one
  }
}

// Threads of a block of softmax_long_rows: each group of 128 has the accumulators of a chunk.
constexpr int kGroups = 4;
constexpr int kLongThreads = kGroups * kAccumulators;

// The tree over the accumulators of each group. Every thread of the block calls; the threads of a
// group's first warp get its result, of which that of the first is right.
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

// One block per row of any length and stride. Its groups sum as many chunks at a time.
template <class T>
__global__ void __launch_bounds__(kLongThreads)
    softmax_long_rows(const __grid_constant__ FibrePlan plan, bool logarithm) {
  using Acc = AccumulatorType<T>;
  using Max = SoftmaxMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  __shared__ Acc group_results[kGroups];
  const int group = static_cast<int>(threadIdx.x) / kAccumulators;
  const int t = static_cast<int>(threadIdx.x) % kAccumulators;
  for (std::int64_t fibre = blockIdx.x; fibre < plan.count; fibre += gridDim.x) {
    const T* in = static_cast<const T*>(plan.in.data) + plan.in.outer.offset(fibre);
    T* out = static_cast<T*>(plan.out.data) + plan.out.outer.offset(fibre);
    // The results of the groups, in group_results. Every thread calls.
    const auto combine_groups = [&](const auto& reducer, Acc accumulator) {
      const Acc result = combine_group_accumulators(reducer, accumulator);
      if (t == 0) group_results[group] = result;
      __syncthreads();
    };
    Acc maximum = Max::neutral();
#pragma unroll 8
    for (std::int64_t k = threadIdx.x; k < plan.length; k += kLongThreads) {
      maximum = Max::combine(maximum, static_cast<Acc>(in[k * plan.in.stride]));
    }
    combine_groups(Max{}, maximum);
    maximum = group_results[0];
    for (int g = 1; g < kGroups; ++g) maximum = Max::combine(maximum, group_results[g]);
    CascadeSum<Acc> cascade;
    constexpr std::int64_t kRound = kGroups * kReduceChunk;
    for (std::int64_t round = 0; round < plan.length; round += kRound) {
      const std::int64_t first = round + group * kReduceChunk;
      const std::int64_t end =
          first + kReduceChunk < plan.length ? first + kReduceChunk : plan.length;
      Acc accumulator = Sum::neutral();
#pragma unroll 8
      for (std::int64_t k = first + t; k < end; k += kAccumulators) {
        accumulator = Sum::combine(accumulator,
                                   exponential(static_cast<Acc>(in[k * plan.in.stride]) - maximum));
      }
      combine_groups(Sum{}, accumulator);
      for (int g = 0; g < kGroups && round + g * kReduceChunk < plan.length; ++g)
        cascade.push(group_results[g]);
    }
    const Acc sum = cascade.finish();
    const Acc tail = logarithm ? natural_logarithm(sum) : sum;
#pragma unroll 4
    for (std::int64_t k = threadIdx.x; k < plan.length; k += kLongThreads) {
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

// Fewest rows that fill a GPU with blocks of eight warps; fewer are spread over smaller blocks.
constexpr std::int64_t kManyRows = 8192;

template <class T, int kMost>
void launch_short_rows(void* stream, bool logarithm, const FibrePlan& plan) {
  const int warps = plan.count < kManyRows ? 2 : kThreads / 32;
  launch("softmax_short_rows", stream, blocks_for((plan.count + warps - 1) / warps * kThreads),
         warps * 32, 0, softmax_short_rows<T, kMost>, plan, logarithm);
}

template <class T>
void launch_held_rows(void* stream, bool logarithm, const FibrePlan& plan) {
  const bool is_wide =
      has_wide_rows<T>(plan.in, plan.length) && has_wide_rows<T>(plan.out, plan.length);
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

void softmax(void* stream, bool logarithm, const FibrePlan& plan) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<T>)) {
      if (plan.is_column_wise() && plan.count >= 8 && plan.length <= kReduceChunk) {
        const std::int64_t tiles = (plan.count + kColumns - 1) / kColumns;
        launch("softmax_columns", stream, blocks_for(tiles * kThreads),
               dim3(kColumns, kColumnThreads), 0, softmax_columns<T>, plan, logarithm);
      } else if (plan.length <= 128) {
        launch_short_rows<T, 4>(stream, logarithm, plan);
      } else if (plan.length <= 512) {
        launch_short_rows<T, 16>(stream, logarithm, plan);
      } else if (plan.length <= kShortRow) {
        launch_short_rows<T, 32>(stream, logarithm, plan);
      } else if (plan.length <= kHeldRow<T>) {
        launch_held_rows<T>(stream, logarithm, plan);
      } else {
        launch("softmax_long_rows", stream, blocks_for(plan.count * kThreads), kLongThreads, 0,
               softmax_long_rows<T>, plan, logarithm);
      }
    }
  });
}

}  // namespace gantry::kernels::cuda
