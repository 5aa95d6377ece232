// Softmax of a few long rows: each is split over many blocks.
//
// The first launch finds the maximum of each piece of a row, the second the sum of each chunk of
// Note [Reduction order], the third combines them in every block and writes a piece of the row.
#pragma once

#include "kernels/cuda/softmax/softmax_held_rows.cuh"
#include "kernels/cuda/softmax/softmax_long_rows.cuh"
#include "kernels/cuda/softmax/softmax_short_rows.cuh"

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
// Blocks that fill a GPU several times: more of them only repeat the work of their begin.
constexpr std::int64_t kManyPieces = 2048;
// Fewest chunks of which each is a warp's: fewer are a block's.
constexpr std::int64_t kManyChunks = 1024;

// The parts of a row, and where their results are.
template <class Acc>
struct SplitRows {
  std::int64_t piece_tiles;  // tiles of a piece
  std::int64_t pieces;       // per row
  std::int64_t chunks;       // per row
  std::int64_t tiles;        // per row
  Acc* maxima;
  Acc* sums;

  SplitRows(const FibrePlan& plan, void* scratch)
      : chunks((plan.length + kReduceChunk - 1) / kReduceChunk),
        tiles((plan.length + kSplitTile - 1) / kSplitTile) {
    const std::int64_t least = (tiles + kMostPieces - 1) / kMostPieces;
    const std::int64_t wanted = plan.count * tiles / kManyPieces;
    piece_tiles = wanted > least ? wanted : least;
    pieces = (tiles + piece_tiles - 1) / piece_tiles;
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

// Where the calling thread's element i of a tile is in the row. Neighbouring threads have
// neighbouring elements, or neighbouring vectors.
template <class T, bool kIsWide>
__device__ std::int64_t split_place(std::int64_t tile, int i) {
  constexpr int V = kIsWide ? kWide<T> : 1;
  return tile * kSplitTile + (static_cast<int>(threadIdx.x) + i / V * kLongThreads) * V + i % V;
}

// Loads the elements of `tile` that the calling thread has. Absent ones are -inf.
template <class T, bool kIsWide, class Acc>
__device__ void load_tile(const T* in, std::int64_t stride, std::int64_t tile, std::int64_t length,
                          StoredPack<Acc, kSplitOwn>& own) {
  constexpr int V = kIsWide ? kWide<T> : 1;
#pragma unroll
  for (int i = 0; i < kSplitOwn; i += V) {
    const std::int64_t k = split_place<T, kIsWide>(tile, i);
    StoredPack<T, V> vector;
    if (k < length) {
      if constexpr (kIsWide) {
        vector = *reinterpret_cast<const StoredPack<T, V>*>(in + k);
      } else {
        vector.values[0] = in[k * stride];
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      own.values[i + v] = k < length ? static_cast<Acc>(vector.values[v]) : RowMax<Acc>::neutral();
    }
  }
}

// The row and the tiles of a block's piece.
template <class Acc>
struct SplitPiece {
  std::int64_t row;
  std::int64_t tile;
  std::int64_t end;

  __device__ explicit SplitPiece(const SplitRows<Acc>& rows) {
    row = blockIdx.x / static_cast<std::uint32_t>(rows.pieces);
    tile = (blockIdx.x - row * rows.pieces) * rows.piece_tiles;
    end = tile + rows.piece_tiles < rows.tiles ? tile + rows.piece_tiles : rows.tiles;
  }
};

template <class T, class Acc, bool kIsWide>
__global__ void __launch_bounds__(kLongThreads, sizeof(T) == 8 ? 2 : 3)
    softmax_piece_maxima(const __grid_constant__ FibrePlan plan, const SplitRows<Acc> rows) {
  using Max = RowMax<Acc>;
  wait_for_previous();
  const SplitPiece<Acc> piece(rows);
  const T* in = static_cast<const T*>(plan.in.data) + near_offset(plan.in.outer, piece.row);
  Acc maximum = Max::neutral();
  for (std::int64_t tile = piece.tile; tile < piece.end; tile += 2) {
    StoredPack<Acc, kSplitOwn> own;
    StoredPack<Acc, kSplitOwn> next;
    load_tile<T, kIsWide>(in, plan.in.stride, tile, plan.length, own);
    const std::int64_t following = tile + 1 < piece.end ? tile + 1 : rows.tiles;
    load_tile<T, kIsWide>(in, plan.in.stride, following, plan.length, next);
#pragma unroll
    for (int i = 0; i < kSplitOwn; ++i) {
      maximum = Max::combine(maximum, Max::combine(own.values[i], next.values[i]));
    }
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
  load_tile<T, false>(in, plan.in.stride, tile, plan.length, own);
  const Acc maximum = maximum_of_row(rows, row);
  Acc accumulator = Sum::neutral();
  while (tile < end) {
#pragma unroll
    for (int i = 0; i < kSplitOwn; ++i)
      powers[t + i * kLongThreads] = exponential(own.values[i] - maximum);
    const std::int64_t rest = plan.length - tile * kSplitTile;
    if (++tile < end) load_tile<T, false>(in, plan.in.stride, tile, plan.length, own);
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

// A warp per chunk: a lane has four accumulators of it. kIsWide: four neighbouring ones.
template <class T, class Acc, bool kIsWide>
__global__ void __launch_bounds__(kThreads, kIsWide ? 4 : 2)
    softmax_warp_chunk_sums(const __grid_constant__ FibrePlan plan, const SplitRows<Acc> rows) {
  using Max = RowMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  constexpr int kBatch = sizeof(T) == 8 ? 4 : 8;  // groups of 128 elements in flight
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t unit = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  if (unit >= plan.count * rows.chunks) return;
  const std::int64_t row = unit / static_cast<std::uint32_t>(rows.chunks);
  const std::int64_t first = (unit - row * rows.chunks) * kReduceChunk;
  const std::int64_t rest = plan.length - first;
  const int count = static_cast<int>(rest < kReduceChunk ? rest : kReduceChunk);
  const T* in = static_cast<const T*>(plan.in.data) + near_offset(plan.in.outer, row) +
                first * plan.in.stride;
  Acc maximum = Max::neutral();
  for (std::int64_t i = lane; i < rows.pieces; i += 32) {
    maximum = Max::combine(maximum, rows.maxima[row * rows.pieces + i]);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    maximum = Max::combine(maximum, __shfl_xor_sync(0xffffffffu, maximum, distance));
  }
  Acc own[1][kOwn];
#pragma unroll
  for (int v = 0; v < kOwn; ++v) own[0][v] = Sum::neutral();
  for (int begin = 0; begin < count; begin += kBatch * kAccumulators) {
    StoredPack<T, kOwn> batch[kBatch];
    const auto place = [&](int i, int v) {
      return begin + i * kAccumulators + (kIsWide ? lane * kOwn + v : lane + v * 32);
    };
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if constexpr (kIsWide) {
        if (place(i, 0) < count) {
          batch[i] = *reinterpret_cast<const StoredPack<T, kOwn>*>(in + place(i, 0));
        }
      } else {
#pragma unroll
        for (int v = 0; v < kOwn; ++v) {
          if (place(i, v) < count) batch[i].values[v] = in[place(i, v) * plan.in.stride];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int v = 0; v < kOwn; ++v) {
        if (place(i, v) < count) {
          own[0][v] =
              Sum::combine(own[0][v], exponential(static_cast<Acc>(batch[i].values[v]) - maximum));
        }
      }
    }
  }
  Acc sum;
  if constexpr (kIsWide) {
    sum = sum_row_accumulators<32>(own, lane);
  } else {
    sum = combine_warp_accumulators(Sum{}, own[0], 32);
  }
  if (lane == 0) rows.sums[unit] = sum;
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

template <class T, class Acc, bool kIsWide>
__global__ void __launch_bounds__(kLongThreads, sizeof(T) == 8 ? 1 : 2)
    softmax_row_pieces(const __grid_constant__ FibrePlan plan, const SplitRows<Acc> rows,
                       bool logarithm) {
  constexpr int V = kIsWide ? kWide<T> : 1;
  wait_for_previous();
  const SplitPiece<Acc> piece(rows);
  const T* in = static_cast<const T*>(plan.in.data) + near_offset(plan.in.outer, piece.row);
  T* out = static_cast<T*>(plan.out.data) + near_offset(plan.out.outer, piece.row);
  StoredPack<Acc, kSplitOwn> next;
  load_tile<T, kIsWide>(in, plan.in.stride, piece.tile, plan.length, next);
  const Acc maximum = maximum_of_row(rows, piece.row);
  const RowEnd<Acc> end(logarithm, sum_of_row(rows, piece.row));
  for (std::int64_t tile = piece.tile; tile < piece.end; ++tile) {
    StoredPack<Acc, kSplitOwn> own = next;
    if (tile + 1 < piece.end) {
      load_tile<T, kIsWide>(in, plan.in.stride, tile + 1, plan.length, next);
    }
#pragma unroll
    for (int i = 0; i < kSplitOwn; ++i) {
      own.values[i] -= maximum;
      if (!logarithm) own.values[i] = exponential(own.values[i]);
    }
    end(own);
#pragma unroll
    for (int i = 0; i < kSplitOwn; i += V) {
      const std::int64_t k = split_place<T, kIsWide>(tile, i);
      StoredPack<T, V> results;
#pragma unroll
      for (int v = 0; v < V; ++v) results.values[v] = stored<T>(own.values[i + v]);
      if (k < plan.length) {
        if constexpr (kIsWide) {
          *reinterpret_cast<StoredPack<T, V>*>(out + k) = results;
        } else {
          out[k * plan.out.stride] = results.values[0];
        }
      }
    }
  }
}

// True for few long rows of one level of chunks. One block ends sooner than three launches, if its
// shared memory holds a row and its groups have a chunk each.
template <class T>
bool is_split(const FibrePlan& plan) {
  constexpr std::int64_t kHeld = kHeldAlone / static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t kOneRound = kGroups * kReduceChunk;
  constexpr std::int64_t kOfBlock = kHeld < kOneRound ? kHeld : kOneRound;
  static_assert(kOfBlock > kHeldRow<T>);
  return plan.count < kFewRows && plan.length > kOfBlock &&
         plan.length <= kReduceChunk * kReduceChunk;
}

template <class T, bool kIsWide>
void launch_split_kernels(void* stream, bool logarithm, const FibrePlan& plan, void* scratch) {
  using Acc = AccumulatorType<T>;
  const SplitRows<Acc> rows(plan, scratch);
  const auto launch_part = [&](const char* name, std::int64_t blocks, int threads, auto kernel,
                               void** arguments) {
    launch_untyped(name, stream, static_cast<unsigned>(blocks), threads,
                   reinterpret_cast<const void*>(kernel), arguments);
  };
  const auto address = [](const auto& value) {
    return const_cast<void*>(static_cast<const void*>(&value));
  };
  void* arguments[] = {address(plan), address(rows), address(logarithm)};
  const std::int64_t pieces = plan.count * rows.pieces;
  const std::int64_t chunks = plan.count * rows.chunks;
  constexpr std::int64_t kWarps = kThreads / 32;
  launch_part("softmax_piece_maxima", pieces, kLongThreads, softmax_piece_maxima<T, Acc, kIsWide>,
              arguments);
  if (chunks >= kManyChunks) {
    launch_part("softmax_chunk_sums", (chunks + kWarps - 1) / kWarps, kThreads,
                softmax_warp_chunk_sums<T, Acc, kIsWide>, arguments);
  } else {
    launch_part("softmax_chunk_sums", chunks, kLongThreads, softmax_chunk_sums<T, Acc>, arguments);
  }
  launch_part("softmax_row_pieces", pieces, kLongThreads, softmax_row_pieces<T, Acc, kIsWide>,
              arguments);
}

template <class T>
void launch_split_rows(void* stream, bool logarithm, const FibrePlan& plan, void* scratch) {
  constexpr int V = kWide<T> < kOwn ? kOwn : kWide<T>;
  if (has_wide_rows<T, V>(plan.in, plan.length) && has_wide_rows<T, V>(plan.out, plan.length)) {
    launch_split_kernels<T, true>(stream, logarithm, plan, scratch);
  } else {
    launch_split_kernels<T, false>(stream, logarithm, plan, scratch);
  }
}

}  // namespace

}  // namespace gantry::kernels::cuda
