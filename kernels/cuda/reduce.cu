// Note [Reduction order] on the GPU: four kernels for four layouts, one order.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/lanes.cuh"
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
// Blocks of reduce_columns: 32 columns times the threads that share the lanes.
constexpr int kColumns = 32;
constexpr int kColumnThreads = 8;

template <class Acc>
__device__ void write_result(const ReducePlan& plan, std::int64_t output, std::int64_t segment,
                             Acc value) {
  if (plan.segments == 1) {
    store_reduced(plan.out, plan.kept_out.offset(output), plan.out_dtype, value, plan.divisor);
  } else {
    static_cast<Acc*>(plan.partials)[output * plan.partial_output_stride +
                                     segment * plan.partial_segment_stride] = value;
  }
}

// Runs the part of a kernel that knows the operation; unsupported ones cannot be asked for.
template <class In, class Acc, class Run>
__device__ void with_reducer(Reduction op, const Run& run) {
  with_reduction(op, [&](auto tag) {
    using R = Reducer<decltype(tag)::value, Acc>;
    if constexpr (R::template supports<In>()) run(R{});
  });
}

// One block of 128 threads, one per lane, reduces one segment of one output.
template <class In, class Acc, bool kOneDim>
__global__ void __launch_bounds__(kLanes) reduce_rows(const __grid_constant__ ReducePlan plan) {
  const std::int64_t tasks = plan.outputs * plan.segments;
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const std::int64_t output = plan.segments == 1 ? task : task / plan.segments;
    const std::int64_t segment = plan.segments == 1 ? 0 : task - output * plan.segments;
    const In* row = static_cast<const In*>(plan.in) + plan.kept.offset(output);
    const std::int64_t first = segment * kReduceSegment;
    const std::int64_t rest = plan.length - first;
    const int count = static_cast<int>(rest < kReduceSegment ? rest : kReduceSegment);
    const std::int64_t stride = plan.reduced.strides[0];
    if constexpr (kOneDim) row += first * stride;
    const auto element = [&](int k) -> In {
      if constexpr (kOneDim) return row[k * stride];
      else return row[plan.reduced.offset(first + k)];
    };
    with_reducer<In, Acc>(plan.op, [&](auto reducer) {
      using R = decltype(reducer);
      Acc lane = R::neutral();
      int k = threadIdx.x;
      for (; k + (kBatch - 1) * kLanes < count; k += kBatch * kLanes) {
        In batch[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) batch[i] = element(k + i * kLanes);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) lane = R::combine(lane, R::load(batch[i]));
      }
      if (k < count) {
        In batch[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (k + i * kLanes < count) batch[i] = element(k + i * kLanes);
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (k + i * kLanes < count) lane = R::combine(lane, R::load(batch[i]));
        }
      }
      const Acc result = combine_block_lanes<R>(lane);
      if (threadIdx.x == 0) write_result(plan, output, segment, result);
    });
  }
}

// A group of `group` threads (a power of two, at most a warp) reduces one short row; with 32
// threads, each has 4 of the 128 lanes.
template <class In, class Acc>
__global__ void __launch_bounds__(kThreads)
    reduce_short_rows(const __grid_constant__ ReducePlan plan, int group) {
  constexpr int kOwn = 4;
  const int lane = threadIdx.x % group;
  const std::int64_t groups = static_cast<std::int64_t>(gridDim.x) * (kThreads / group);
  const std::int64_t begin =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / group) + threadIdx.x / group;
  const int count = static_cast<int>(plan.length);
  const std::int64_t stride = plan.reduced.strides[0];
  // Every thread of a warp takes part in its shuffles, with or without a row.
  const std::int64_t rounds = (plan.outputs + groups - 1) / groups;
  with_reducer<In, Acc>(plan.op, [&](auto reducer) {
    using R = decltype(reducer);
    for (std::int64_t round = 0; round < rounds; ++round) {
      const std::int64_t output = begin + round * groups;
      const bool is_present = output < plan.outputs;
      const In* row = static_cast<const In*>(plan.in) + (is_present ? plan.kept.offset(output) : 0);
      const int end = is_present ? count : 0;
      Acc own[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) own[i] = R::neutral();
      for (int first = lane; first < end; first += 2 * kLanes) {
        In batch[2 * kOwn];
#pragma unroll
        for (int i = 0; i < 2 * kOwn; ++i) {
          if (first + i * 32 < end) batch[i] = row[(first + i * 32) * stride];
        }
#pragma unroll
        for (int i = 0; i < 2 * kOwn; ++i) {
          if (first + i * 32 < end) own[i % kOwn] = R::combine(own[i % kOwn], R::load(batch[i]));
        }
      }
      const Acc result = combine_warp_lanes<R>(own, group);
      if (is_present && lane == 0) write_result(plan, output, 0, result);
    }
  });
}

// One thread per output of at most kFew elements.
template <class In, class Acc>
__global__ void __launch_bounds__(kThreads) reduce_few(const __grid_constant__ ReducePlan plan) {
  const int count = static_cast<int>(plan.length);
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t output = first_index(); output < plan.outputs; output += index_step()) {
    const In* column = static_cast<const In*>(plan.in) + plan.kept.offset(output);
    In elements[kFew];
#pragma unroll
    for (int k = 0; k < kFew; ++k) {
      if (k < count) elements[k] = column[k * stride];
    }
    with_reducer<In, Acc>(plan.op, [&](auto reducer) {
      using R = decltype(reducer);
      Acc lanes[kFew];
#pragma unroll
      for (int k = 0; k < kFew; ++k) lanes[k] = k < count ? R::load(elements[k]) : R::neutral();
#pragma unroll
      for (int half = kFew / 2; half > 0; half /= 2) {
#pragma unroll
        for (int k = 0; k < half; ++k) lanes[k] = R::combine(lanes[k], lanes[k + half]);
      }
      write_result(plan, output, 0, lanes[0]);
    });
  }
}

// A block of 32 x 8 threads reduces one segment of 32 neighbouring outputs; each thread has 16 of a
// column's 128 lanes.
template <class In, class Acc>
__global__ void __launch_bounds__(kColumns* kColumnThreads)
    reduce_columns(const __grid_constant__ ReducePlan plan) {
  constexpr int kOwn = kLanes / kColumnThreads;
  __shared__ Acc shared[kColumnThreads][kColumns];
  const std::int64_t tiles = (plan.outputs + kColumns - 1) / kColumns;
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t task = blockIdx.x; task < tiles * plan.segments; task += gridDim.x) {
    const std::int64_t segment = task / tiles;
    const std::int64_t output = (task - segment * tiles) * kColumns + threadIdx.x;
    const bool is_present = output < plan.outputs;
    const std::int64_t first = segment * kReduceSegment;
    const std::int64_t rest = plan.length - first;
    const int count = is_present ? static_cast<int>(rest < kReduceSegment ? rest : kReduceSegment) : 0;
    const In* column = static_cast<const In*>(plan.in) +
                       (is_present ? plan.kept.offset(output) : 0) + first * stride;
    with_reducer<In, Acc>(plan.op, [&](auto reducer) {
      using R = decltype(reducer);
      Acc own[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) own[i] = R::neutral();
      int k = threadIdx.y;
      for (; k + (kOwn - 1) * kColumnThreads < count; k += kLanes) {
        In batch[kOwn];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) batch[i] = column[(k + i * kColumnThreads) * stride];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) own[i] = R::combine(own[i], R::load(batch[i]));
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int at = k + i * kColumnThreads;
        if (at < count) own[i] = R::combine(own[i], R::load(column[at * stride]));
      }
      const Acc result = combine_column_lanes<R>(own, shared);
      if (is_present && threadIdx.y == 0) write_result(plan, output, segment, result);
    });
  }
}

unsigned limited(std::int64_t blocks) {
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

template <class In, class Acc>
void reduce_with(void* stream, const ReducePlan& plan) {
  if (plan.reduced.ndim > 1) {
    launch("reduce_rows", stream, limited(plan.outputs * plan.segments), kLanes, 0,
           reduce_rows<In, Acc, false>, plan);
  } else if (plan.is_column_wise() && plan.length <= kFew) {
    launch("reduce_few", stream, blocks_for(plan.outputs), kThreads, 0, reduce_few<In, Acc>, plan);
  } else if (plan.is_column_wise()) {
    const std::int64_t tiles = (plan.outputs + kColumns - 1) / kColumns;
    launch("reduce_columns", stream, limited(tiles * plan.segments), dim3(kColumns, kColumnThreads),
           0, reduce_columns<In, Acc>, plan);
  } else if (plan.length <= kShortRow) {
    int group = 1;
    while (group < 32 && group < plan.length) group *= 2;
    launch("reduce_short_rows", stream, blocks_for(plan.outputs * group), kThreads, 0,
           reduce_short_rows<In, Acc>, plan, group);
  } else {
    launch("reduce_rows", stream, limited(plan.outputs * plan.segments), kLanes, 0,
           reduce_rows<In, Acc, true>, plan);
  }
}

}  // namespace

void reduce(void* stream, const ReducePlan& plan) {
  dispatch_stored(plan.in_dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<In>)) {
      if (plan.accumulator != DType::i64) {
        reduce_with<In, AccumulatorType<In>>(stream, plan);
        return;
      }
    }
    reduce_with<In, std::int64_t>(stream, plan);
  });
}

}  // namespace gantry::kernels::cuda
