// Note [Tiles of fibres]
// A block loads the sources of a few neighbouring fibres into shared memory, and sorts their
// destinations there with their places. A stable sort keeps the order of the writes to one
// destination, and one thread makes all of them. Nothing but the sources, the indices and the
// destinations moves through global memory, each once.
//
// Fibres that are rows lie one after the other in a tile, so a row is loaded side by side. Of
// columns, the elements of neighbouring fibres are side by side. The sorted destinations have the
// same order, so neighbouring threads write neighbouring elements.
#include <algorithm>

#include "kernels/cuda/elementwise/offset_calculator.cuh"
#include "kernels/cuda/indexing/index_fault.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordering/block_radix.cuh"
#include "kernels/impl/scatter.inl"

namespace gantry::kernels::cuda {

namespace {

// Elements of a thread. A block that has a multiprocessor for itself takes few: its threads make
// their accesses one after the other.
constexpr int kItems = 17;
constexpr int kFewItems = 5;
template <int kOwn>
constexpr int kMostThreads = kOwn == kItems ? 512 : 1024;
constexpr std::int64_t kMostElements = kItems * kMostThreads<kItems>;
// Elements of a tile that keeps a block busy. Fewer blocks than kFewestBlocks take smaller tiles.
constexpr std::int64_t kTileElements = 4 * 32 * kItems;
constexpr std::int64_t kMultiprocessors = 132;
constexpr std::int64_t kFewestBlocks = 2 * kMultiprocessors;
// Columns that share a sector of every operand, for elements of 2 bytes, and the most of others.
constexpr std::int64_t kMostColumns = 16;
// A destination out of range, and the padding.
constexpr std::uint32_t kNowhere = 0xffff;
// Shared memory of a block without leave.
constexpr std::size_t kPlainBytes = 48 << 10;
// Elements of a thread that it loads at the same time.
constexpr int kBatch = 4;

struct TilePlan {
  OffsetCalculator<3> fibres;
  std::uint32_t count;  // fibres
  std::int32_t tile;    // fibres of a block
  bool has_columns;
  FastDivisor by_inner;  // the length of a row, or the columns of a tile
  FastDivisor by_keys;   // destinations of a row, or the columns of a tile
  std::int32_t bits;     // of a key
};

// Fibres that a block takes at once.
struct FibreTiles {
  std::int32_t tile = 0;  // fibres; 0: the fibres are too long, or have too many destinations
  bool has_columns = false;
};

// The fibre of a tile, and the position in it.
struct TilePlace {
  int fibre;
  int position;
};
__device__ inline TilePlace split(const FastDivisor& divisor, bool has_columns, std::uint32_t at) {
  const std::uint32_t quotient = divisor.divide(at);
  const auto outer = static_cast<int>(quotient);
  const auto inner = static_cast<int>(at - quotient * divisor.divisor);
  return has_columns ? TilePlace{inner, outer} : TilePlace{outer, inner};
}

template <class Update, int kOwn>
__global__ void __launch_bounds__(kMostThreads<kOwn>, kOwn == kItems ? 2 : 1)
    scatter_tiles_kernel(const __grid_constant__ IndexingPlan plan,
                         const __grid_constant__ TilePlan tiles) {
  using T = typename Update::Element;
  extern __shared__ __align__(16) unsigned char scatter_tiles_memory[];
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int places = kOwn * threads;
  auto* const offsets = reinterpret_cast<std::int64_t(*)[3]>(scatter_tiles_memory);
  auto* const values = reinterpret_cast<T*>(offsets + tiles.tile);
  auto* const words = reinterpret_cast<std::uint32_t*>(reinterpret_cast<unsigned char*>(values) +
                                                       sizeof(T) * places);
  std::uint32_t* const counters = words + places;
  const std::uint32_t first = blockIdx.x * static_cast<std::uint32_t>(tiles.tile);
  const std::uint32_t rest = tiles.count - first;
  const int fibres = static_cast<int>(rest < static_cast<std::uint32_t>(tiles.tile)
                                          ? rest
                                          : static_cast<std::uint32_t>(tiles.tile));
  for (int f = thread; f < fibres; f += threads) tiles.fibres.offsets(first + f, offsets[f]);
  __syncthreads();

  const int length = static_cast<int>(plan.fibre_length);
  const int count = tiles.tile * length;
  for (int begin = thread; begin < places; begin += kBatch * threads) {
    std::int64_t indices[kBatch];
    T batch[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int at = begin + b * threads;
      const TilePlace place =
          split(tiles.by_inner, tiles.has_columns, static_cast<std::uint32_t>(at));
      if (at >= count || place.fibre >= fibres) continue;
      const std::int64_t(&from)[3] = offsets[place.fibre];
      indices[b] = load_index(plan, from[2] + place.position * plan.indices_stride);
      batch[b] = static_cast<const T*>(plan.direct)[from[0] + place.position * plan.direct_stride];
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int at = begin + b * threads;
      if (at >= places) break;
      const TilePlace place =
          split(tiles.by_inner, tiles.has_columns, static_cast<std::uint32_t>(at));
      std::uint32_t key = kNowhere;
      if (at < count && place.fibre < fibres) {
        values[at] = batch[b];
        const std::int64_t position = checked_position(plan, indices[b]);
        if (position >= 0) {
          const auto to = static_cast<std::uint32_t>(position);
          const auto fibre = static_cast<std::uint32_t>(place.fibre);
          key = tiles.has_columns ? to * tiles.by_keys.divisor + fibre
                                  : fibre * tiles.by_keys.divisor + to;
        }
      }
      words[at] = key << 16 | static_cast<std::uint32_t>(at);
    }
  }
  __syncthreads();
  sort_words<kOwn>(words, counters, 16, 16 + tiles.bits);

  for (int begin = thread; begin < count; begin += kBatch * threads) {
    T* elements[kBatch];
    T sums[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int at = begin + b * threads;
      elements[b] = nullptr;
      if (at >= count) break;
      const std::uint32_t key = words[at] >> 16;
      if (key == kNowhere || (at > 0 && words[at - 1] >> 16 == key)) continue;
      const TilePlace place = split(tiles.by_keys, tiles.has_columns, key);
      elements[b] = static_cast<T*>(plan.indexed) + offsets[place.fibre][1] +
                    place.position * plan.index_stride;
      sums[b] = *elements[b];
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int at = begin + b * threads;
      if (at >= count) break;
      if (elements[b] == nullptr) continue;
      const std::uint32_t key = words[at] >> 16;
      int next = at;
      do {
        sums[b] = Update::apply(sums[b], values[words[next] & 0xffff]);
      } while (++next < places && words[next] >> 16 == key);
      *elements[b] = sums[b];
    }
  }
}

FibreTiles fibre_tiles(const IndexingPlan& plan) {
  FibreTiles tiles;
  const std::int64_t length = plan.fibre_length;
  const std::int64_t fibres = plan.fibres.numel;
  if (length > kMostElements || plan.index_size > kNowhere || fibres >= (std::int64_t{1} << 31)) {
    return tiles;
  }
  // Neighbouring fibres are closer together than the elements of one.
  const std::int64_t between = plan.fibres.strides[0][0];
  tiles.has_columns = fibres > 1 && between < plan.direct_stride;
  std::int64_t tile = std::min(kMostElements / length, kNowhere / plan.index_size);
  tile = std::min(tile, fibres);
  if (tiles.has_columns) {
    const std::int64_t sector = std::max<std::int64_t>(4, 32 / plan.element_bytes);
    tile = std::min(tile, std::max(sector, std::min(kMostColumns, kTileElements / length)));
    tile = std::min(tile, plan.fibres.sizes[0]);
  } else {
    tile = std::min(tile, std::max<std::int64_t>(1, kTileElements / length));
    tile = std::min(tile, std::max<std::int64_t>(1, fibres / kFewestBlocks));
  }
  tiles.tile = static_cast<std::int32_t>(tile);
  return tiles;
}

template <class Update, int kOwn>
void launch_tiles(void* stream, const IndexingPlan& plan, const TilePlan& tiles, unsigned blocks) {
  constexpr std::int64_t kWarpItems = 32 * kOwn;
  const std::int64_t count = tiles.tile * plan.fibre_length;
  const int threads = static_cast<int>((count + kWarpItems - 1) / kWarpItems) * 32;
  const std::size_t bytes =
      static_cast<std::size_t>(tiles.tile) * sizeof(std::int64_t[3]) +
      static_cast<std::size_t>(kOwn * threads) *
          (sizeof(typename Update::Element) + sizeof(std::uint32_t)) +
      static_cast<std::size_t>(counter_words(threads)) * sizeof(std::uint32_t);
  if (bytes > kPlainBytes) {
    const cudaError_t status =
        cudaFuncSetAttribute(scatter_tiles_kernel<Update, kOwn>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (status != cudaSuccess) {
      (void)cudaGetLastError();
      throw_launch_error(plan.op, stream, status);
    }
  }
  launch("scatter_tiles", stream, blocks, static_cast<unsigned>(threads), bytes,
         scatter_tiles_kernel<Update, kOwn>, plan, tiles);
}

}  // namespace

bool has_tiles(const IndexingPlan& plan, ScatterMode mode) {
  return mode != ScatterMode::replace && is_floating_point(plan.dtype) &&
         fibre_tiles(plan).tile > 0;
}

void scatter_tiles(void* stream, const IndexingPlan& plan, ScatterMode mode) {
  const FibreTiles tiles = fibre_tiles(plan);
  TilePlan tile = {};
  tile.fibres = OffsetCalculator<3>(plan.fibres);
  tile.count = static_cast<std::uint32_t>(plan.fibres.numel);
  tile.tile = tiles.tile;
  tile.has_columns = tiles.has_columns;
  const auto columns = static_cast<std::uint32_t>(tiles.tile);
  tile.by_inner =
      FastDivisor(tiles.has_columns ? columns : static_cast<std::uint32_t>(plan.fibre_length));
  tile.by_keys =
      FastDivisor(tiles.has_columns ? columns : static_cast<std::uint32_t>(plan.index_size));
  const std::int64_t keys = tiles.tile * plan.index_size;  // and kNowhere, whose bits are all ones
  tile.bits = 1;
  while (keys >> tile.bits != 0) ++tile.bits;
  const unsigned blocks = (tile.count + columns - 1) / columns;
  const bool takes_few = blocks <= kMultiprocessors &&
                         tiles.tile * plan.fibre_length <= kFewItems * kMostThreads<kFewItems>;
  dispatch_scatter(mode, plan.dtype, plan.element_bytes, [&](auto tag) {
    using Update = typename decltype(tag)::type;
    if constexpr (kRounds<Update>) {
      if (takes_few) return launch_tiles<Update, kFewItems>(stream, plan, tile, blocks);
      launch_tiles<Update, kItems>(stream, plan, tile, blocks);
    }
  });
}

}  // namespace gantry::kernels::cuda
