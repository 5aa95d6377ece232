// Reductions on the GPU: one kernel per memory layout, all in the order of Note [Reduction order].
#pragma once

#include "kernels/cuda/accumulators.cuh"
#include "kernels/cuda/device_reducers.cuh"
#include "kernels/cuda/last_block.cuh"
#include "kernels/cuda/launch.cuh"

namespace gantry::kernels::cuda {

namespace {

constexpr int kAccumulators = kReduceAccumulators;
// Threads of a block that reduces rows: one per accumulator.
constexpr int kRowThreads = kAccumulators;
// Loads in flight per thread.
constexpr int kBatch = 16;
constexpr int kVectorBatch = 8;
template <class In>
constexpr int kDenseBatch = sizeof(In) == 8 ? 32 : 64;
// Longest column that one thread reduces, with every element in a register.
constexpr int kFew = 16;
// Longest row that a warp, or a part of one, reduces without vector loads.
constexpr int kShortRow = 1024;
// Block shape of reduce_columns: columns x threads that share one column's accumulators.
constexpr int kColumns = 32;
constexpr int kColumnThreads = 8;
// Block shape of reduce_wide_columns: packs of columns x threads that share their accumulators.
constexpr int kPacks = 8;
constexpr int kPackThreads = 32;
// Fewest chunks that fill a GPU with one warp per chunk.
constexpr std::int64_t kManyChunks = 1024;

// Not inlined: the unrolled loads of a batch would each get a copy of the divisions.
__device__ __noinline__ std::int64_t distant_offset(const StridedIndex& dims, std::int64_t i) {
  return dims.offset(i);
}

// The value of any and all from a count of non-zeros; every other value is itself.
template <class Acc>
__device__ Acc answer(const ReducePlan& plan, Acc value) {
  if constexpr (std::is_same_v<Acc, std::int64_t>) {
    if (plan.op == Reduction::any) return value != 0;
    if (plan.op == Reduction::all) return value == plan.total_length;
  }
  return value;
}

template <class Acc>
__device__ __noinline__ void write_output(const ReducePlan& plan, std::int64_t output, Acc value) {
  store_reduced(plan.out, plan.kept_out.offset(output), plan.out_dtype, answer(plan, value),
                plan.divisor);
}

template <class Acc>
__device__ void write_result(const ReducePlan& plan, std::int64_t output, std::int64_t chunk,
                             Acc value) {
  if (plan.chunks == 1) {
    write_output(plan, output, value);
  } else {
    static_cast<Acc*>(
        plan.partials)[output * plan.partial_output_stride + chunk * plan.partial_chunk_stride] =
        value;
  }
}

__device__ inline int chunk_length(const ReducePlan& plan, std::int64_t chunk) {
  const std::int64_t rest = plan.length - chunk * kReduceChunk;
  return static_cast<int>(rest < kReduceChunk ? rest : kReduceChunk);
}

// A block of kRowThreads threads reduces `count` results that are `stride` apart. Thread 0 gets the
// result.
template <class R, class Acc>
__device__ Acc merge_row(const R& reducer, const Acc* partials, std::int64_t stride, int count) {
  constexpr int kInFlight = 8;
  Acc accumulator = reducer.neutral();
  for (int k = static_cast<int>(threadIdx.x); k < count; k += kInFlight * kAccumulators) {
    Acc batch[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int at = k + i * kAccumulators;
      batch[i] = at < count ? __ldcg(partials + at * stride) : Acc(0);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (k + i * kAccumulators < count)
        accumulator = reducer.combine(accumulator, reducer.load(batch[i]));
    }
  }
  return reducer.finish(combine_block_accumulators(reducer, accumulator));
}

// Ends a block of a row kernel: the last of the output's `blocks` merges.
template <class R, class Acc>
__device__ void finish_row(const R& reducer, const ReducePlan& plan, std::int64_t output,
                           std::uint32_t blocks) {
  if (!plan.merges || !is_last_block(plan.counters, output, blocks)) return;
  const Acc* partials =
      static_cast<const Acc*>(plan.partials) + output * plan.partial_output_stride;
  const Acc result = merge_row(reducer.merge(), partials, plan.partial_chunk_stride,
                               static_cast<int>(plan.chunks));
  if (threadIdx.x == 0) write_output(plan, output, result);
}

// `group` threads of a warp (a power of two) reduce `count` dense elements. Thread t has the
// accumulators 4 t … 4 t + 3, which one vector load fills. With fewer than 32 threads, `count` is
// at most 4 * group. Every thread of the warp calls; the group's first thread gets the result.
template <class R, class In, class Acc>
__device__ Acc reduce_dense_chunk(const R& reducer, const In* in, int count, int lane, int group) {
  using Vector = StoredPack<In, 4>;
  const Vector* vectors = reinterpret_cast<const Vector*>(in) + lane;
  Acc own[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) own[i] = reducer.neutral();
  const auto add = [&](const Vector& vector) {
#pragma unroll
    for (int i = 0; i < 4; ++i) own[i] = reducer.combine(own[i], reducer.load(vector.values[i]));
  };
  int rest = count;
  for (; rest >= kVectorBatch * kAccumulators; rest -= kVectorBatch * kAccumulators) {
    Vector batch[kVectorBatch];
#pragma unroll
    for (int i = 0; i < kVectorBatch; ++i) batch[i] = vectors[i * 32];
#pragma unroll
    for (int i = 0; i < kVectorBatch; ++i) add(batch[i]);
    vectors += kVectorBatch * 32;
  }
#pragma unroll 4
  for (; rest >= kAccumulators; rest -= kAccumulators, vectors += 32) add(*vectors);
  rest -= 4 * lane;
  if (rest >= 4) {
    add(*vectors);
  } else {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      if (i < rest) {
        const In element = reinterpret_cast<const In*>(vectors)[i];
        own[i] = reducer.combine(own[i], reducer.load(element));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) own[i] = reduce_in_group(reducer, own[i], group);
  return reducer.finish(
      reducer.combine(reducer.combine(own[0], own[2]), reducer.combine(own[1], own[3])));
}

// A group of threads per dense row of at most one chunk: a warp, or fewer threads for rows of fewer
// than 128 elements.
template <class In, class Acc, class R>
__global__ void __launch_bounds__(kRowThreads)
    reduce_dense_rows(const __grid_constant__ ReducePlan plan, const R reducer, int group) {
  const int lane = static_cast<int>(threadIdx.x) % group;
  const int per_block = kRowThreads / group;
  const std::int64_t groups = static_cast<std::int64_t>(gridDim.x) * per_block;
  std::int64_t output = static_cast<std::int64_t>(blockIdx.x) * per_block + threadIdx.x / group;
  // Threads without a row stay in the loop: a warp's shuffles need all of its threads.
  const std::int64_t rounds = (plan.outputs + groups - 1) / groups;
  for (std::int64_t round = 0; round < rounds; ++round, output += groups) {
    const bool is_present = output < plan.outputs;
    const In* row = static_cast<const In*>(plan.in);
    if (is_present) row += distant_offset(plan.kept, output);
    const int count = is_present ? static_cast<int>(plan.length) : 0;
    const Acc result = reduce_dense_chunk<R, In, Acc>(reducer, row, count, lane, group);
    if (is_present && lane == 0) write_output(plan, output, result);
  }
}

// A warp per chunk of a dense row; a block has chunks of one row.
template <class In, class Acc, class R>
__global__ void __launch_bounds__(kRowThreads)
    reduce_dense_chunks(const __grid_constant__ ReducePlan plan, const R reducer,
                        std::uint32_t blocks_per_row) {
  const std::int64_t output = blockIdx.x / blocks_per_row;
  const std::int64_t chunk =
      static_cast<std::int64_t>(blockIdx.x % blocks_per_row) * (kRowThreads / 32) +
      threadIdx.x / 32;
  if (chunk < plan.chunks) {
    const In* in =
        static_cast<const In*>(plan.in) + distant_offset(plan.kept, output) + chunk * kReduceChunk;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Acc result =
        reduce_dense_chunk<R, In, Acc>(reducer, in, chunk_length(plan, chunk), lane, 32);
    if (lane == 0) write_result(plan, output, chunk, result);
  }
  finish_row<R, Acc>(reducer, plan, output, blocks_per_row);
}

// The elements of one chunk for a thread that takes every 128th. Offset(i) is the position of
// element i of the chunk.
template <int kInFlight, class In, class R, class Acc, class Offset>
__device__ void reduce_every_128th(const R& reducer, const In* in, int count, Acc& accumulator,
                                   const Offset& offset) {
  int k = static_cast<int>(threadIdx.x);
  for (; k + (kInFlight - 1) * kAccumulators < count; k += kInFlight * kAccumulators) {
    In batch[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) batch[i] = in[offset(k, i)];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      accumulator = reducer.combine(accumulator, reducer.load(batch[i]));
  }
#pragma unroll 4
  for (; k < count; k += kAccumulators)
    accumulator = reducer.combine(accumulator, reducer.load(in[offset(k, 0)]));
}

// How a block of reduce_rows finds the elements of a chunk.
enum class RowLayout { dense, strided, dims };

// A block of 128 threads, one per accumulator, reduces one chunk of one row.
template <class In, class Acc, class R, RowLayout kLayout>
__global__ void __launch_bounds__(kRowThreads)
    reduce_rows(const __grid_constant__ ReducePlan plan, const R reducer) {
  const std::int64_t tasks = plan.outputs * plan.chunks;
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const std::int64_t output = plan.chunks == 1 ? task : task / plan.chunks;
    const std::int64_t chunk = plan.chunks == 1 ? 0 : task - output * plan.chunks;
    const std::int64_t first = chunk * kReduceChunk;
    const In* row = static_cast<const In*>(plan.in) + distant_offset(plan.kept, output);
    Acc accumulator = reducer.neutral();
    const int count = chunk_length(plan, chunk);
    if constexpr (kLayout == RowLayout::dense) {
      reduce_every_128th<kDenseBatch<In>>(reducer, row + first, count, accumulator,
                                          [](int k, int i) { return k + i * kAccumulators; });
    } else if constexpr (kLayout == RowLayout::strided) {
      const std::int64_t step = stride * kAccumulators;
      reduce_every_128th<kBatch>(reducer, row + first * stride, count, accumulator,
                                 [&](int k, int i) { return k * stride + i * step; });
    } else {
      reduce_every_128th<4>(reducer, row, count, accumulator, [&](int k, int i) {
        return distant_offset(plan.reduced, first + k + i * kAccumulators);
      });
    }
    const Acc result = reducer.finish(combine_block_accumulators(reducer, accumulator));
    if (threadIdx.x == 0) write_result(plan, output, chunk, result);
    finish_row<R, Acc>(reducer, plan, output, static_cast<std::uint32_t>(plan.chunks));
  }
}

// A group of `group` threads (a power of two, at most a warp) reduces one short row. With 32
// threads, each has 4 of the 128 accumulators.
template <class In, class Acc, class R>
__global__ void __launch_bounds__(kThreads)
    reduce_short_rows(const __grid_constant__ ReducePlan plan, const R reducer, int group) {
  constexpr int kOwn = 4;
  constexpr int kInFlight = 2 * kOwn;
  const int lane = static_cast<int>(threadIdx.x) % group;
  const int per_block = kThreads / group;
  const std::int64_t groups = static_cast<std::int64_t>(gridDim.x) * per_block;
  std::int64_t output = static_cast<std::int64_t>(blockIdx.x) * per_block + threadIdx.x / group;
  const std::int64_t stride = plan.reduced.strides[0];
  // Threads without a row stay in the loop: a warp's shuffles need all of its threads.
  const std::int64_t rounds = (plan.outputs + groups - 1) / groups;
  for (std::int64_t round = 0; round < rounds; ++round, output += groups) {
    const bool is_present = output < plan.outputs;
    const In* row = static_cast<const In*>(plan.in) + lane * stride;
    if (is_present) row += distant_offset(plan.kept, output);
    Acc own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = reducer.neutral();
    for (int rest = is_present ? static_cast<int>(plan.length) - lane : 0; rest > 0;
         rest -= kInFlight * 32) {
      In batch[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (i * 32 < rest) batch[i] = row[i * 32 * stride];
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (i * 32 < rest) {
          own[i % kOwn] = reducer.combine(own[i % kOwn], reducer.load(batch[i]));
        }
      }
      row += kInFlight * 32 * stride;
    }
    const Acc result = reducer.finish(combine_warp_accumulators(reducer, own, group));
    if (is_present && lane == 0) write_output(plan, output, result);
  }
}

// One thread reduces one output of at most kFew elements.
template <class In, class Acc, class R>
__global__ void __launch_bounds__(kThreads)
    reduce_few(const __grid_constant__ ReducePlan plan, const R reducer) {
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
    combine_own<kFew / 2>(reducer, accumulators);
    write_output(plan, output, reducer.finish(accumulators[0]));
  }
}

// kColumnThreads threads reduce `count` elements of one column, which are `stride` apart. Thread
// `part` has the accumulators part, part + 8, …; column `c` of the block's kColumns. Every thread
// of the block calls; the threads with part 0 get the results.
template <class In, class Acc, class R>
__device__ Acc reduce_column(const R& reducer, const In* column, std::int64_t stride, int count,
                             int c, int part) {
  constexpr int kOwn = kAccumulators / kColumnThreads;
  __shared__ Acc shared[kColumnThreads][kColumns];
  Acc own[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) own[i] = reducer.neutral();
  int k = part;
  for (; k + (kOwn - 1) * kColumnThreads < count; k += kAccumulators) {
    In batch[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) batch[i] = column[(k + i * kColumnThreads) * stride];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = reducer.combine(own[i], reducer.load(batch[i]));
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int at = k + i * kColumnThreads;
    if (at < count) own[i] = reducer.combine(own[i], reducer.load(column[at * stride]));
  }
  return reducer.finish(combine_column_accumulators(reducer, own, shared, c, part));
}

// Ends a block of a column kernel with kTile columns and 256 threads: the last of the tile's blocks
// merges them.
template <int kTile, class Acc, class R>
__device__ void finish_columns(const R& reducer, const ReducePlan& plan, std::int64_t tile) {
  if (!plan.merges ||
      !is_last_block(plan.counters, tile, static_cast<std::uint32_t>(plan.chunks))) {
    return;
  }
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int c = thread % kColumns;
  const int part = thread / kColumns;
  for (int first = 0; first < kTile; first += kColumns) {
    const std::int64_t output = tile * kTile + first + c;
    const bool is_present = output < plan.outputs && first + c < kTile;
    const Acc* partials = static_cast<const Acc*>(plan.partials);
    if (is_present) partials += output * plan.partial_output_stride;
    const int count = is_present ? static_cast<int>(plan.chunks) : 0;
    const Acc result = reduce_column<Acc, Acc>(reducer.merge(), partials, plan.partial_chunk_stride,
                                               count, c, part);
    if (is_present && part == 0) write_output(plan, output, result);
  }
}

// A block of 32 x 8 threads reduces one chunk of 32 neighbouring outputs. Each thread has 16 of a
// column's 128 accumulators.
template <class In, class Acc, class R>
__global__ void __launch_bounds__(kColumns* kColumnThreads)
    reduce_columns(const __grid_constant__ ReducePlan plan, const R reducer) {
  const std::int64_t tiles = (plan.outputs + kColumns - 1) / kColumns;
  const std::int64_t stride = plan.reduced.strides[0];
  const int c = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(threadIdx.y);
  for (std::int64_t task = blockIdx.x; task < tiles * plan.chunks; task += gridDim.x) {
    const std::int64_t chunk = task / tiles;
    const std::int64_t tile = task - chunk * tiles;
    const std::int64_t output = tile * kColumns + c;
    const bool is_present = output < plan.outputs;
    const In* column = static_cast<const In*>(plan.in) + chunk * kReduceChunk * stride;
    if (is_present) column += distant_offset(plan.kept, output);
    const int count = is_present ? chunk_length(plan, chunk) : 0;
    const Acc result = reduce_column<In, Acc>(reducer, column, stride, count, c, part);
    if (is_present && part == 0) write_result(plan, output, chunk, result);
    finish_columns<kColumns, Acc>(reducer, plan, tile);
  }
}

// Neighbouring columns that a thread of reduce_wide_columns loads at once.
template <class In>
constexpr int kPackColumns = sizeof(In) >= 8   ? 2
                             : sizeof(In) == 4 ? 4
                                               : 8;

// A block of 8 x 32 threads reduces one chunk of 8 packs of neighbouring outputs. A thread has 4 of
// the 128 accumulators of each column of its pack. Packs are aligned.
template <class In, class Acc, class R>
__global__ void __launch_bounds__(kPacks* kPackThreads)
    reduce_wide_columns(const __grid_constant__ ReducePlan plan, const R reducer) {
  constexpr int V = kPackColumns<In>;
  constexpr int kTile = kPacks * V;
  constexpr int kOwn = kAccumulators / kPackThreads;
  constexpr int kInFlight = 2 * kOwn;
  using Vector = StoredPack<In, V>;
  __shared__ Acc shared[kPackThreads][kTile + 1];
  const std::int64_t tiles = (plan.outputs + kTile - 1) / kTile;
  const std::int64_t stride = plan.reduced.strides[0];
  const int pack = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(threadIdx.y);
  for (std::int64_t task = blockIdx.x; task < tiles * plan.chunks; task += gridDim.x) {
    const std::int64_t chunk = task / tiles;
    const std::int64_t tile = task - chunk * tiles;
    const std::int64_t first_output = tile * kTile + pack * V;
    const bool is_present = first_output < plan.outputs;
    const In* column = static_cast<const In*>(plan.in) + (chunk * kReduceChunk + part) * stride;
    if (is_present) column += distant_offset(plan.kept, first_output);
    Acc own[kOwn][V];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
      for (int v = 0; v < V; ++v) own[i][v] = reducer.neutral();
    }
    const auto add = [&](int i, const Vector& vector) {
#pragma unroll
      for (int v = 0; v < V; ++v)
        own[i][v] = reducer.combine(own[i][v], reducer.load(vector.values[v]));
    };
    const auto load = [&](int i) {
      return *reinterpret_cast<const Vector*>(column + i * kPackThreads * stride);
    };
    int rest = is_present ? chunk_length(plan, chunk) - part : 0;
    for (; rest > (kInFlight - 1) * kPackThreads; rest -= kInFlight * kPackThreads) {
      Vector batch[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) batch[i] = load(i);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) add(i % kOwn, batch[i]);
      column += kInFlight * kPackThreads * stride;
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (i * kPackThreads < rest) add(i % kOwn, load(i));
    }
    __syncthreads();  // the previous task may still read the shared array
#pragma unroll
    for (int v = 0; v < V; ++v) {
      shared[part][pack * V + v] = reducer.combine(reducer.combine(own[0][v], own[2][v]),
                                                   reducer.combine(own[1][v], own[3][v]));
    }
    for (int half = kPackThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      for (int at = part * kPacks + pack; at < half * kTile; at += kPacks * kPackThreads) {
        Acc& into = shared[at / kTile][at % kTile];
        into = reducer.combine(into, shared[at / kTile + half][at % kTile]);
      }
    }
    __syncthreads();
    const int c = part * kPacks + pack;
    const std::int64_t output = tile * kTile + c;
    if (c < kTile && output < plan.outputs) {
      write_result(plan, output, chunk, reducer.finish(shared[0][c]));
    }
    finish_columns<kTile, Acc>(reducer, plan, tile);
  }
}

inline unsigned limited(std::int64_t blocks) {
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

// True if every output's elements begin on a multiple of `elements`, for vector loads of them.
template <class In>
bool is_aligned(const ReducePlan& plan, int elements) {
  const std::size_t bytes = sizeof(In) * static_cast<std::size_t>(elements);
  if (reinterpret_cast<std::uintptr_t>(plan.in) % (bytes < 16 ? bytes : 16) != 0) return false;
  for (int d = 0; d < plan.kept.ndim; ++d) {
    if (plan.kept.strides[d] % elements != 0) return false;
  }
  return true;
}

// True if neighbouring columns form aligned packs.
template <class In>
bool has_packs(const ReducePlan& plan) {
  constexpr int V = kPackColumns<In>;
  const int last = plan.kept.ndim - 1;
  if (last < 0 || plan.kept.strides[last] != 1 || plan.kept.sizes[last] % V != 0 ||
      plan.reduced.strides[0] % V != 0) {
    return false;
  }
  ReducePlan others = plan;
  --others.kept.ndim;
  return is_aligned<In>(others, V);
}

template <class In, class Acc, class R>
void reduce_with(void* stream, const ReducePlan& plan) {
  const R reducer(plan);
  const std::int64_t tasks = plan.outputs * plan.chunks;
  const bool is_dense = plan.reduced.ndim == 0 || plan.reduced.strides[0] == 1;
  if (plan.reduced.ndim > 1) {
    launch("reduce_rows", stream, limited(tasks), kRowThreads, 0,
           reduce_rows<In, Acc, R, RowLayout::dims>, plan, reducer);
  } else if (plan.is_column_wise() && plan.length <= kFew) {
    launch("reduce_few", stream, blocks_for(plan.outputs), kThreads, 0, reduce_few<In, Acc, R>,
           plan, reducer);
  } else if (plan.is_column_wise() && has_packs<In>(plan)) {
    constexpr int kTile = kPacks * kPackColumns<In>;
    const std::int64_t tiles = (plan.outputs + kTile - 1) / kTile;
    launch("reduce_wide_columns", stream, limited(tiles * plan.chunks), dim3(kPacks, kPackThreads),
           0, reduce_wide_columns<In, Acc, R>, plan, reducer);
  } else if (plan.is_column_wise()) {
    const std::int64_t tiles = (plan.outputs + kColumns - 1) / kColumns;
    launch("reduce_columns", stream, limited(tiles * plan.chunks), dim3(kColumns, kColumnThreads),
           0, reduce_columns<In, Acc, R>, plan, reducer);
  } else if (is_dense && plan.chunks == 1 && is_aligned<In>(plan, 4) &&
             (plan.length <= kShortRow || plan.outputs >= kManyChunks)) {
    int group = 1;
    while (group < 32 && 4 * group < plan.length) group *= 2;
    const std::int64_t threads = plan.outputs * group;
    launch("reduce_dense_rows", stream, limited((threads + kRowThreads - 1) / kRowThreads),
           kRowThreads, 0, reduce_dense_rows<In, Acc, R>, plan, reducer, group);
  } else if (is_dense && plan.chunks > 1 && is_aligned<In>(plan, 4) && tasks >= kManyChunks &&
             tasks < (std::int64_t{1} << 31)) {
    const std::int64_t blocks = (plan.chunks + kRowThreads / 32 - 1) / (kRowThreads / 32);
    launch("reduce_dense_chunks", stream, static_cast<unsigned>(plan.outputs * blocks), kRowThreads,
           0, reduce_dense_chunks<In, Acc, R>, plan, reducer, static_cast<std::uint32_t>(blocks));
  } else if (plan.length <= kShortRow) {
    int group = 1;
    while (group < 32 && group < plan.length) group *= 2;
    launch("reduce_short_rows", stream, blocks_for(plan.outputs * group), kThreads, 0,
           reduce_short_rows<In, Acc, R>, plan, reducer, group);
  } else if (is_dense) {
    launch("reduce_rows", stream, limited(tasks), kRowThreads, 0,
           reduce_rows<In, Acc, R, RowLayout::dense>, plan, reducer);
  } else {
    launch("reduce_rows", stream, limited(tasks), kRowThreads, 0,
           reduce_rows<In, Acc, R, RowLayout::strided>, plan, reducer);
  }
}

// Calls reduce_with for the dtype of plan.in.
template <template <class> class R>
void reduce_elements(void* stream, const ReducePlan& plan) {
  dispatch_stored(plan.in_dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    reduce_with<In, AccumulatorType<In>, R<AccumulatorType<In>>>(stream, plan);
  });
}

}  // namespace

}  // namespace gantry::kernels::cuda
