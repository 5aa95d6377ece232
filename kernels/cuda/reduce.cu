// Note [Reduction order] on the GPU: kernels for several layouts, one order.
#include "kernels/cuda/lanes.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/impl/reduce.inl"

namespace gantry::kernels::cuda {

namespace {

constexpr int kLanes = kReduceLanes;
// Loads that one thread has in flight.
constexpr int kBatch = 16;
// Up to this length one thread reduces a column, with every element in a register.
constexpr int kFew = 16;
// Up to this length a warp (or a part of one) reduces a row.
constexpr int kShortRow = 1024;
// Blocks of reduce_columns: 32 columns times the threads that share their lanes.
constexpr int kColumns = 32;
constexpr int kColumnThreads = 8;

// A Reduction as kernels run it. Sums have code of their own; the rest is chosen at run time, which
// costs less than the memory that it waits for.
template <class In, class Acc, bool kSum>
class DeviceReducer {
 public:
  // Elements are tested against `nonzero_mask` if it is not 0.
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

// Out of line: its divisions would otherwise be repeated for every load of a batch.
__device__ __noinline__ std::int64_t distant_offset(const StridedIndex& dims, std::int64_t i) {
  return dims.offset(i);
}

template <class Acc>
__device__ __noinline__ void write_result(const ReducePlan& plan, std::int64_t output,
                                          std::int64_t segment, Acc value) {
  if (plan.segments == 1) {
    store_reduced(plan.out, plan.kept_out.offset(output), plan.out_dtype, value, plan.divisor);
  } else {
    static_cast<Acc*>(plan.partials)[output * plan.partial_output_stride +
                                     segment * plan.partial_segment_stride] = value;
  }
}

__device__ int segment_length(const ReducePlan& plan, std::int64_t segment) {
  const std::int64_t rest = plan.length - segment * kReduceSegment;
  return static_cast<int>(rest < kReduceSegment ? rest : kReduceSegment);
}

// One block of 128 threads, one per lane, reduces one segment of one output.
template <class In, class Acc, bool kSum, bool kOneDim>
__global__ void __launch_bounds__(kLanes)
    reduce_rows(const __grid_constant__ ReducePlan plan, std::int64_t nonzero_mask) {
  constexpr int kInFlight = kOneDim ? kBatch : 4;
  const DeviceReducer<In, Acc, kSum> reducer(plan.op, nonzero_mask);
  const std::int64_t tasks = plan.outputs * plan.segments;
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const std::int64_t output = plan.segments == 1 ? task : task / plan.segments;
    const std::int64_t segment = plan.segments == 1 ? 0 : task - output * plan.segments;
    const std::int64_t first = segment * kReduceSegment;
    const In* row = static_cast<const In*>(plan.in) + distant_offset(plan.kept, output);
    if constexpr (kOneDim) row += first * stride;
    Acc lane = reducer.neutral();
    int rest = segment_length(plan, segment) - static_cast<int>(threadIdx.x);
    for (std::int64_t k = threadIdx.x; rest > 0; k += kInFlight * kLanes) {
      In batch[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (i * kLanes < rest) {
          if constexpr (kOneDim) {
            batch[i] = row[(k + i * kLanes) * stride];
          } else {
            batch[i] = row[distant_offset(plan.reduced, first + k + i * kLanes)];
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (i * kLanes < rest) lane = reducer.combine(lane, reducer.load(batch[i]));
      }
      rest -= kInFlight * kLanes;
    }
    const Acc result = combine_block_lanes(reducer, lane);
    if (threadIdx.x == 0) write_result(plan, output, segment, result);
  }
}

// A group of `group` threads (a power of two, at most a warp) reduces one short row; with 32
// threads, each has 4 of the 128 lanes.
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
  // Every thread of a warp takes part in its shuffles, with or without a row.
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
    const Acc result = combine_warp_lanes(reducer, own, group);
    if (is_present && lane == 0) write_result(plan, output, 0, result);
  }
}

// One thread per output of at most kFew elements.
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
    Acc lanes[kFew];
#pragma unroll
    for (int k = 0; k < kFew; ++k) {
      lanes[k] = k < count ? reducer.load(batch[k]) : reducer.neutral();
    }
#pragma unroll
    for (int half = kFew / 2; half > 0; half /= 2) {
#pragma unroll
      for (int k = 0; k < half; ++k) lanes[k] = reducer.combine(lanes[k], lanes[k + half]);
    }
    write_result(plan, output, 0, lanes[0]);
  }
}

// A block of 32 x 8 threads reduces one segment of 32 neighbouring outputs; each thread has 16 of a
// column's 128 lanes.
template <class In, class Acc, bool kSum>
__global__ void __launch_bounds__(kColumns* kColumnThreads)
    reduce_columns(const __grid_constant__ ReducePlan plan, std::int64_t nonzero_mask) {
  constexpr int kOwn = kLanes / kColumnThreads;
  __shared__ Acc shared[kColumnThreads][kColumns];
  const DeviceReducer<In, Acc, kSum> reducer(plan.op, nonzero_mask);
  const std::int64_t tiles = (plan.outputs + kColumns - 1) / kColumns;
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t task = blockIdx.x; task < tiles * plan.segments; task += gridDim.x) {
    const std::int64_t segment = task / tiles;
    const std::int64_t output = (task - segment * tiles) * kColumns + threadIdx.x;
    const bool is_present = output < plan.outputs;
    const In* column = static_cast<const In*>(plan.in) + segment * kReduceSegment * stride;
    if (is_present) column += distant_offset(plan.kept, output);
    Acc own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = reducer.neutral();
    int rest = is_present ? segment_length(plan, segment) - static_cast<int>(threadIdx.y) : 0;
    for (std::int64_t k = threadIdx.y; rest > 0; k += kLanes) {
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
      rest -= kLanes;
    }
    const Acc result = combine_column_lanes(reducer, own, shared);
    if (is_present && threadIdx.y == 0) write_result(plan, output, segment, result);
  }
}

unsigned limited(std::int64_t blocks) {
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

template <class In, class Acc, bool kSum>
void reduce_with(void* stream, const ReducePlan& plan, std::int64_t nonzero_mask) {
  if (plan.reduced.ndim > 1) {
    launch("reduce_rows", stream, limited(plan.outputs * plan.segments), kLanes, 0,
           reduce_rows<In, Acc, kSum, false>, plan, nonzero_mask);
  } else if (plan.is_column_wise() && plan.length <= kFew) {
    launch("reduce_few", stream, blocks_for(plan.outputs), kThreads, 0, reduce_few<In, Acc, kSum>,
           plan, nonzero_mask);
  } else if (plan.is_column_wise()) {
    const std::int64_t tiles = (plan.outputs + kColumns - 1) / kColumns;
    launch("reduce_columns", stream, limited(tiles * plan.segments), dim3(kColumns, kColumnThreads),
           0, reduce_columns<In, Acc, kSum>, plan, nonzero_mask);
  } else if (plan.length <= kShortRow) {
    int group = 1;
    while (group < 32 && group < plan.length) group *= 2;
    launch("reduce_short_rows", stream, blocks_for(plan.outputs * group), kThreads, 0,
           reduce_short_rows<In, Acc, kSum>, plan, nonzero_mask, group);
  } else {
    launch("reduce_rows", stream, limited(plan.outputs * plan.segments), kLanes, 0,
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

// The integer that stands for elements of `dtype` where all that matters is whether they are zero,
// and the bits that say so: a float is zero with either sign.
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
