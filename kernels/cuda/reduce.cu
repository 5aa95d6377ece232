// Reductions on the GPU: one kernel per memory layout, all in the order of Note [Reduction order].
#include "kernels/cuda/accumulators.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/impl/reduce.inl"

namespace gantry::kernels::cuda {

namespace {

constexpr int kAccumulators = kReduceAccumulators;
// Loads in flight per thread.
constexpr int kBatch = 16;
// Longest column that one thread reduces, with every element in a register.
constexpr int kFew = 16;
// Longest row that a warp, or a part of one, reduces.
constexpr int kShortRow = 1024;
// Block shape of reduce_columns: columns x threads that share one column's accumulators.
constexpr int kColumns = 32;
constexpr int kColumnThreads = 8;

// The operation of a kernel. Sums are specialized. The others branch at run time, because these
// kernels are bound by memory.
template <class In, class Acc, bool kSum>
class DeviceReducer {
 public:
  // A `nonzero_mask` other than 0 turns each element into (element & nonzero_mask) != 0.
  __device__ DeviceReducer(Reduction op, std::int64_t nonzero_mask)
      : op_(op), merge_(merging_reduction(op)), nonzero_mask_(nonzero_mask) {}

  __device__ Acc neutral() const {
    if constexpr (kSum) return Reducer<Reduction::sum, Acc>::neutral();
    if (merge_ == Reduction::prod) return Reducer<Reduction::prod, Acc>::neutral();
    if (merge_ == Reduction::min) return Reducer<Reduction::min, Acc>::neutral();
    return Reducer<Reduction::max, Acc>::neutral();
  }

  __device__ Acc load(In element) const {
    const Acc value = static_cast<Acc>(element);
    if constexpr (std::is_same_v<Acc, std::int64_t>) {
      return nonzero_mask_ == 0 ? value : (value & nonzero_mask_) != 0;
    } else {
      if (op_ == Reduction::sum_squares) return value * value;
      if (op_ == Reduction::sum_abs) return value <= 0 ? Acc(0) - value : value;
      return value;
    }
  }

  __device__ Acc combine(Acc a, Acc b) const {
    if constexpr (kSum) return Reducer<Reduction::sum, Acc>::combine(a, b);
    if (merge_ == Reduction::prod) return Reducer<Reduction::prod, Acc>::combine(a, b);
    if (merge_ == Reduction::min) return Reducer<Reduction::min, Acc>::combine(a, b);
    return Reducer<Reduction::max, Acc>::combine(a, b);
  }

 private:
  Reduction op_;
  Reduction merge_;
  std::int64_t nonzero_mask_;
};

// Not inlined: the unrolled loads of a batch would each get a copy of the divisions.
__device__ __noinline__ std::int64_t distant_offset(const StridedIndex& dims, std::int64_t i) {
  return dims.offset(i);
}

template <class Acc>
__device__ __noinline__ void write_result(const ReducePlan& plan, std::int64_t output,
                                          std::int64_t chunk, Acc value) {
  if (plan.chunks == 1) {
    store_reduced(plan.out, plan.kept_out.offset(output), plan.out_dtype, value, plan.divisor);
  } else {
    static_cast<Acc*>(
        plan.partials)[output * plan.partial_output_stride + chunk * plan.partial_chunk_stride] =
        value;
  }
}

__device__ int chunk_length(const ReducePlan& plan, std::int64_t chunk) {
  const std::int64_t rest = plan.length - chunk * kReduceChunk;
  return static_cast<int>(rest < kReduceChunk ? rest : kReduceChunk);
}

// A block of 128 threads, one per accumulator, reduces one chunk of one output.
template <class In, class Acc, bool kSum, bool kOneDim>
__global__ void __launch_bounds__(kAccumulators)
    reduce_rows(const __grid_constant__ ReducePlan plan, std::int64_t nonzero_mask) {
  constexpr int kInFlight = kOneDim ? kBatch : 4;
  const DeviceReducer<In, Acc, kSum> reducer(plan.op, nonzero_mask);
  const std::int64_t tasks = plan.outputs * plan.chunks;
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const std::int64_t output = plan.chunks == 1 ? task : task / plan.chunks;
    const std::int64_t chunk = plan.chunks == 1 ? 0 : task - output * plan.chunks;
    const std::int64_t first = chunk * kReduceChunk;
    const In* row = static_cast<const In*>(plan.in) + distant_offset(plan.kept, output);
    if constexpr (kOneDim) row += first * stride;
    Acc accumulator = reducer.neutral();
    int rest = chunk_length(plan, chunk) - static_cast<int>(threadIdx.x);
    for (std::int64_t k = threadIdx.x; rest > 0; k += kInFlight * kAccumulators) {
      In batch[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (i * kAccumulators < rest) {
          if constexpr (kOneDim) {
            batch[i] = row[(k + i * kAccumulators) * stride];
          } else {
            batch[i] = row[distant_offset(plan.reduced, first + k + i * kAccumulators)];
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (i * kAccumulators < rest)
          accumulator = reducer.combine(accumulator, reducer.load(batch[i]));
      }
      rest -= kInFlight * kAccumulators;
    }
    const Acc result = combine_block_accumulators(reducer, accumulator);
    if (threadIdx.x == 0) write_result(plan, output, chunk, result);
  }
}

// A group of `group` threads (a power of two, at most a warp) reduces one short row. With 32
// threads, each has 4 of the 128 accumulators.
template <class In, class Acc, bool kSum>
__global__ void __launch_bounds__(kThreads)
    reduce_short_rows(const __grid_constant__ ReducePlan plan, std::int64_t nonzero_mask,
                      int group) {
  constexpr int kOwn = 4;
  constexpr int kInFlight = 2 * kOwn;
  const DeviceReducer<In, Acc, kSum> reducer(plan.op, nonzero_mask);
  const int lane = static_cast<int>(threadIdx.x) % group;
  const int per_block = kThreads / group;
  const std::int64_t groups = static_cast<std::int64_t>(gridDim.x) * per_block;
  std::int64_t output = static_cast<std::int64_t>(blockIdx.x) * per_block + threadIdx.x / group;
  const std::int64_t stride = plan.reduced.strides[0];
  // Threads without a row stay in the loop: a warp's shuffles need all of its threads.
  const std::int64_t rounds = (plan.outputs + groups - 1) / groups;
  for (std::int64_t round = 0; round < rounds; ++round, output += groups) {
    const bool is_present = output < plan.outputs;
    const In* row = static_cast<const In*>(plan.in);
    if (is_present) row += distant_offset(plan.kept, output);
    Acc own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = reducer.neutral();
    int rest = is_present ? static_cast<int>(plan.length) - lane : 0;
    for (std::int64_t k = lane; rest > 0; k += kInFlight * 32) {
      In batch[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (i * 32 < rest) batch[i] = row[(k + i * 32) * stride];
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (i * 32 < rest) {
          own[i % kOwn] = reducer.combine(own[i % kOwn], reducer.load(batch[i]));
        }
      }
      rest -= kInFlight * 32;
    }
    const Acc result = combine_warp_accumulators(reducer, own, group);
    if (is_present && lane == 0) write_result(plan, output, 0, result);
  }
}

// One thread reduces one output of at most kFew elements.
template <class In, class Acc, bool kSum>
__global__ void __launch_bounds__(kThreads)
    reduce_few(const __grid_constant__ ReducePlan plan, std::int64_t nonzero_mask) {
  const DeviceReducer<In, Acc, kSum> reducer(plan.op, nonzero_mask);
  const int count = static_cast<int>(plan.length);
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t output = first_index(); output < plan.outputs; output += index_step()) {
    const In* column = static_cast<const In*>(plan.in) + distant_offset(plan.kept, output);
    In batch[kFew];
#pragma unroll
    for (int k = 0; k < kFew; ++k) {
      if (k < count) batch[k] = column[k * stride];
    }
    Acc accumulators[kFew];
#pragma unroll
    for (int k = 0; k < kFew; ++k) {
      accumulators[k] = k < count ? reducer.load(batch[k]) : reducer.neutral();
    }
#pragma unroll
    for (int half = kFew / 2; half > 0; half /= 2) {
#pragma unroll
      for (int k = 0; k < half; ++k)
        accumulators[k] = reducer.combine(accumulators[k], accumulators[k + half]);
    }
    write_result(plan, output, 0, accumulators[0]);
  }
}

// A block of 32 x 8 threads reduces one chunk of 32 neighbouring outputs. Each thread has 16 of a
// column's 128 accumulators.
template <class In, class Acc, bool kSum>
__global__ void __launch_bounds__(kColumns* kColumnThreads)
    reduce_columns(const __grid_constant__ ReducePlan plan, std::int64_t nonzero_mask) {
  constexpr int kOwn = kAccumulators / kColumnThreads;
  __shared__ Acc shared[kColumnThreads][kColumns];
  const DeviceReducer<In, Acc, kSum> reducer(plan.op, nonzero_mask);
  const std::int64_t tiles = (plan.outputs + kColumns - 1) / kColumns;
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t task = blockIdx.x; task < tiles * plan.chunks; task += gridDim.x) {
    const std::int64_t chunk = task / tiles;
    const std::int64_t output = (task - chunk * tiles) * kColumns + threadIdx.x;
    const bool is_present = output < plan.outputs;
    const In* column = static_cast<const In*>(plan.in) + chunk * kReduceChunk * stride;
    if (is_present) column += distant_offset(plan.kept, output);
    Acc own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = reducer.neutral();
    int rest = is_present ? chunk_length(plan, chunk) - static_cast<int>(threadIdx.y) : 0;
    for (std::int64_t k = threadIdx.y; rest > 0; k += kAccumulators) {
      In batch[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (i * kColumnThreads < rest) batch[i] = column[(k + i * kColumnThreads) * stride];
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (i * kColumnThreads < rest) {
          own[i] = reducer.combine(own[i], reducer.load(batch[i]));
        }
      }
      rest -= kAccumulators;
    }
    const Acc result = combine_column_accumulators(reducer, own, shared);
    if (is_present && threadIdx.y == 0) write_result(plan, output, chunk, result);
  }
}

unsigned limited(std::int64_t blocks) {
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

template <class In, class Acc, bool kSum>
void reduce_with(void* stream, const ReducePlan& plan, std::int64_t nonzero_mask) {
  if (plan.reduced.ndim > 1) {
    launch("reduce_rows", stream, limited(plan.outputs * plan.chunks), kAccumulators, 0,
           reduce_rows<In, Acc, kSum, false>, plan, nonzero_mask);
  } else if (plan.is_column_wise() && plan.length <= kFew) {
    launch("reduce_few", stream, blocks_for(plan.outputs), kThreads, 0, reduce_few<In, Acc, kSum>,
           plan, nonzero_mask);
  } else if (plan.is_column_wise()) {
    const std::int64_t tiles = (plan.outputs + kColumns - 1) / kColumns;
    launch("reduce_columns", stream, limited(tiles * plan.chunks), dim3(kColumns, kColumnThreads),
           0, reduce_columns<In, Acc, kSum>, plan, nonzero_mask);
  } else if (plan.length <= kShortRow) {
    int group = 1;
    while (group < 32 && group < plan.length) group *= 2;
    launch("reduce_short_rows", stream, blocks_for(plan.outputs * group), kThreads, 0,
           reduce_short_rows<In, Acc, kSum>, plan, nonzero_mask, group);
  } else {
    launch("reduce_rows", stream, limited(plan.outputs * plan.chunks), kAccumulators, 0,
           reduce_rows<In, Acc, kSum, true>, plan, nonzero_mask);
  }
}

template <class In>
void reduce_elements(void* stream, const ReducePlan& plan, std::int64_t nonzero_mask) {
  using Acc = AccumulatorType<In>;
  if (merging_reduction(plan.op) == Reduction::sum) {
    reduce_with<In, Acc, true>(stream, plan, nonzero_mask);
  } else {
    reduce_with<In, Acc, false>(stream, plan, nonzero_mask);
  }
}

// A zero test on raw bits: the integer dtype of the element's size and the mask of its value bits.
// The mask leaves out a float's sign, so that -0 is zero.
struct ZeroTest {
  DType dtype;
  std::int64_t mask;
};

ZeroTest zero_test(DType dtype) {
  if (!is_floating_point(dtype)) return {dtype, -1};
  switch (element_size(dtype)) {
    case 2:
      return {DType::i16, 0x7fff};
    case 4:
      return {DType::i32, 0x7fffffff};
  }
  return {DType::i64, INT64_MAX};
}

}  // namespace

void reduce(void* stream, const ReducePlan& plan) {
  const bool tests_zero =
      plan.op == Reduction::any || plan.op == Reduction::all || plan.op == Reduction::count_nonzero;
  const ZeroTest how = tests_zero ? zero_test(plan.in_dtype) : ZeroTest{plan.in_dtype, 0};
  dispatch_stored(how.dtype, [&](auto tag) {
    reduce_elements<typename decltype(tag)::type>(stream, plan, how.mask);
  });
}

}  // namespace gantry::kernels::cuda
