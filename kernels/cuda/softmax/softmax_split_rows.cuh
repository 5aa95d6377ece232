// Softmax of a few long rows: each is split over many blocks.
//
// The first launch finds the maximum of each piece of a row, the second the sum of each chunk of
// Note [Reduction order], the third combines them in every block and writes a part of the row.
#pragma once

#include "kernels/cuda/softmax/softmax_held_rows.cuh"
#include "kernels/cuda/softmax/softmax_long_rows.cuh"

namespace gantry::kernels::cuda {

namespace {

// Elements of each thread of a block, all in flight, and of the block.
constexpr int kSplitOwn = 8;
constexpr int kSplitTile = kSplitOwn * kLongThreads;
constexpr int kTilesPerChunk = static_cast<int>(kReduceChunk) / kSplitTile;
static_assert(kTilesPerChunk * kSplitTile == kReduceChunk);
// Fewer rows leave multiprocessors without a block of their own.
constexpr std::int64_t kFewRows = 128;
// Most maxima of a row: every block of the later launches reads them all.
constexpr std::int64_t kMostPieces = 1024;

// The parts of a row, and where their results are.
template <class Acc>
struct SplitRows {
  std::int64_t piece;   // elements of a maximum: tiles of a row
  std::int64_t pieces;  // per row
  std::int64_t chunks;  // per row
  std::int64_t tiles;   // per row
  Acc* maxima;
  Acc* sums;

  SplitRows(const FibrePlan& plan, void* scratch)
      : chunks((plan.length + kReduceChunk - 1) / kReduceChunk),
        tiles((plan.length + kSplitTile - 1) / kSplitTile) {
    piece = (tiles + kMostPieces - 1) / kMostPieces * kSplitTile;
    pieces = (plan.length + piece - 1) / piece;
    maxima = static_cast<Acc*>(scratch);
    sums = maxima + plan.count * pieces;
  }
  [[nodiscard]] std::size_t bytes(std::int64_t rows) const {
    return static_cast<std::size_t>(rows * (pieces + chunks)) * sizeof(Acc);
  }
};

// The result of a block's values, in every thread.
template <class R, class Acc>
__device__ Acc combine_in_block(const R& reducer, Acc value) {
  __shared__ Acc results[kGroups];
  const Acc result = combine_group_accumulators(reducer, value);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread % kAccumulators == 0) results[thread / kAccumulators] = result;
  __syncthreads();
  Acc combined = results[0];
#pragma unroll
  for (int g = 1; g < kGroups; ++g) combined = reducer.combine(combined, results[g]);
  return combined;
}

// Loads the elements of `tile` that the calling thread has: neighbouring threads have neighbouring
// ones. Absent ones are -inf.
template <class T, class Acc>
__device__ void load_tile(const T* in, std::int64_t stride, std::int64_t tile, std::int64_t length,
                          StoredPack<Acc, kSplitOwn>& own) {
  const std::int64_t first = tile * kSplitTile + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kSplitOwn; ++i) {
    const std::int64_t k = first + i * kLongThreads;
    own.values[i] = k < length ? static_cast<Acc>(in[k * stride]) : RowMax<Acc>::neutral();
  }
}

template <class T, class Acc>
__global__ void __launch_bounds__(kLongThreads, 2)
    softmax_piece_maxima(const __grid_constant__ FibrePlan plan, const SplitRows<Acc> rows) {
  using Max = RowMax<Acc>;
  wait_for_previous();
  const std::int64_t row = blockIdx.x / rows.pieces;
  const std::int64_t begin = (blockIdx.x - row * rows.pieces) * rows.piece;
  const T* in = static_cast<const T*>(plan.in.data) + near_offset(plan.in.outer, row);
  Acc maximum = Max::neutral();
  for (std::int64_t k = begin; k < begin + rows.piece && k < plan.length; k += kSplitTile) {
    StoredPack<Acc, kSplitOwn> own;
    load_tile(in, plan.in.stride, k / kSplitTile, plan.length, own);
#pragma unroll
    for (int i = 0; i < kSplitOwn; ++i) maximum = Max::combine(maximum, own.values[i]);
  }
  maximum = combine_in_block(Max{}, maximum);
  if (threadIdx.x == 0) rows.maxima[blockIdx.x] = maximum;
}

template <class Acc>
__device__ Acc maximum_of_row(const SplitRows<Acc>& rows, std::int64_t row) {
  using Max = RowMax<Acc>;
  Acc maximum = Max::neutral();
  for (std::int64_t i = threadIdx.x; i < rows.pieces; i += kLongThreads)
    maximum = Max::combine(maximum, rows.maxima[row * rows.pieces + i]);
  return combine_in_block(Max{}, maximum);
}

// A block per chunk. All threads make exponentials; the first 128 each add the ones of an
// accumulator.
template <class T, class Acc>
__global__ void __launch_bounds__(kLongThreads, 2)
    softmax_chunk_sums(const __grid_constant__ FibrePlan plan, const SplitRows<Acc> rows) {
  using Sum = SoftmaxSum<Acc>;
  __shared__ Acc powers[kSplitTile];
  wait_for_previous();
  const std::int64_t row = blockIdx.x / rows.chunks;
  const std::int64_t chunk = blockIdx.x - row * rows.chunks;
  const T* in = static_cast<const T*>(plan.in.data) + near_offset(plan.in.outer, row);
  const int t = static_cast<int>(threadIdx.x);
  std::int64_t tile = chunk * kTilesPerChunk;
  const std::int64_t end = tile + kTilesPerChunk < rows.tiles ? tile + kTilesPerChunk : rows.tiles;
  StoredPack<Acc, kSplitOwn> own;
  load_tile(in, plan.in.stride, tile, plan.length, own);
  const Acc maximum = maximum_of_row(rows, row);
  Acc accumulator = Sum::neutral();
  while (tile < end) {
#pragma unroll
    for (int i = 0; i < kSplitOwn; ++i)
      powers[t + i * kLongThreads] = exponential(own.values[i] - maximum);
    const std::int64_t rest = plan.length - tile * kSplitTile;
    if (++tile < end) load_tile(in, plan.in.stride, tile, plan.length, own);
    __syncthreads();
    if (t < kAccumulators) {
#pragma unroll 8
      for (int k = t; k < kSplitTile; k += kAccumulators) {
        if (k < rest) accumulator = Sum::combine(accumulator, powers[k]);
      }
    }
    __syncthreads();
  }
  const Acc sum = combine_group_accumulators(Sum{}, accumulator);
  if (t == 0) rows.sums[blockIdx.x] = sum;
}

// The sum over the chunks of a row, in every thread.
template <class Acc>
__device__ Acc sum_of_row(const SplitRows<Acc>& rows, std::int64_t row) {
  using Sum = SoftmaxSum<Acc>;
  __shared__ Acc sum;
  const Acc* sums = rows.sums + row * rows.chunks;
  Acc accumulator = Sum::neutral();
  for (std::int64_t i = threadIdx.x % kAccumulators; i < rows.chunks; i += kAccumulators)
    accumulator = Sum::combine(accumulator, sums[i]);
  const Acc result = combine_group_accumulators(Sum{}, accumulator);
  if (threadIdx.x == 0) sum = result;
  __syncthreads();
  return sum;
}

template <class T, class Acc>
__global__ void __launch_bounds__(kLongThreads, 2)
    softmax_row_tiles(const __grid_constant__ FibrePlan plan, const SplitRows<Acc> rows,
                      bool logarithm) {
  wait_for_previous();
  const std::int64_t row = blockIdx.x / rows.tiles;
  const std::int64_t tile = blockIdx.x - row * rows.tiles;
  const T* in = static_cast<const T*>(plan.in.data) + near_offset(plan.in.outer, row);
  T* out = static_cast<T*>(plan.out.data) + near_offset(plan.out.outer, row);
  StoredPack<Acc, kSplitOwn> own;
  load_tile(in, plan.in.stride, tile, plan.length, own);
  const Acc maximum = maximum_of_row(rows, row);
  const RowEnd<Acc> end(logarithm, sum_of_row(rows, row));
#pragma unroll
  for (int i = 0; i < kSplitOwn; ++i) {
    own.values[i] -= maximum;
    if (!logarithm) own.values[i] = exponential(own.values[i]);
  }
  end(own);
  const std::int64_t first = tile * kSplitTile + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kSplitOwn; ++i) {
    const std::int64_t k = first + i * kLongThreads;
    if (k < plan.length) out[k * plan.out.stride] = stored<T>(own.values[i]);
  }
}

// True for few rows that are longer than shared memory holds and have one level of chunks.
template <class T>
bool is_split(const FibrePlan& plan) {
  return plan.count < kFewRows && plan.length > kHeldRow<T> &&
         plan.length <= kReduceChunk * kReduceChunk;
}

template <class T>
void launch_split_rows(void* stream, bool logarithm, const FibrePlan& plan, void* scratch) {
  using Acc = AccumulatorType<T>;
  const SplitRows<Acc> rows(plan, scratch);
  const auto launch_parts = [&](const char* name, std::int64_t parts, auto kernel,
                                void** arguments) {
    launch_untyped(name, stream, static_cast<unsigned>(plan.count * parts), kLongThreads,
                   reinterpret_cast<const void*>(kernel), arguments);
  };
  const auto address = [](const auto& value) {
    return const_cast<void*>(static_cast<const void*>(&value));
  };
  void* arguments[] = {address(plan), address(rows), address(logarithm)};
  launch_parts("softmax_piece_maxima", rows.pieces, softmax_piece_maxima<T, Acc>, arguments);
  launch_parts("softmax_chunk_sums", rows.chunks, softmax_chunk_sums<T, Acc>, arguments);
  launch_parts("softmax_row_tiles", rows.tiles, softmax_row_tiles<T, Acc>, arguments);
}

}  // namespace

}  // namespace gantry::kernels::cuda
