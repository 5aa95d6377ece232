// Note [Radix selection]
// Finds the element of one rank, with one pass for each byte of the key, from the highest byte. A
// pass makes a histogram of this byte, over the elements whose higher bytes equal the higher
// bytes of the sought key. The bin that contains the rank gives the next byte of the key. After the
// last pass the key is known, and the rank among the elements with this key. For topk, the elements
// before it are collected in the order of their positions, and then sorted. All counts are
// integers, so the order in which blocks add them has no effect.
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordering/select_rows.hpp"
#include "kernels/ordering/ordered_key.hpp"
#include "kernels/ordering/sort_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

// Elements of a fibre that one block counts: fewer if the blocks would leave the GPU idle.
constexpr std::int64_t kLongestTile = 16384;
constexpr std::int64_t kShortestTile = 2048;
constexpr std::int64_t kManyTiles = 1024;
constexpr int kBytes = 256;
static_assert(kThreads == kBytes);
constexpr int kWarps = kThreads / 32;

// The known bytes of a fibre's sought key, and the counts of the current byte. All zero at first.
struct SelectState {
  unsigned long long key;   // its higher bytes
  unsigned long long rank;  // among the elements with these bytes
  std::uint32_t counts[kBytes];
};

// Elements of a tile that precede the sought key, and those that have it; later, the same of all
// tiles before it.
struct TileCounts {
  std::uint32_t smaller;
  std::uint32_t equal;
};

struct SelectMemory {
  SelectState* states = nullptr;
  TileCounts* tiles = nullptr;         // of one fibre after the other
  std::uint32_t* positions = nullptr;  // of the candidates
  void* keys = nullptr;                // of the candidates
  std::int64_t tile = kLongestTile;    // elements
  std::int64_t tiles_per_fibre = 0;
};

std::int64_t tiles_of(const SortPlan& plan, std::int64_t tile) {
  return (plan.fibres.length + tile - 1) / tile;
}

std::int64_t tile_length(const SortPlan& plan) {
  std::int64_t tile = kLongestTile;
  while (tile > kShortestTile && plan.fibres.count * tiles_of(plan, tile) < kManyTiles) tile /= 2;
  return tile;
}

__global__ void __launch_bounds__(kThreads)
    select_begin_kernel(const __grid_constant__ SortPlan plan, SelectState* states) {
  for (std::int64_t fibre = first_index(); fibre < plan.fibres.count; fibre += index_step()) {
    states[fibre].rank =
        static_cast<unsigned long long>(first_rank(plan, fibre) + (plan.count - 1));
  }
}

template <class U>
__global__ void __launch_bounds__(kThreads)
    select_count_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order,
                        const __grid_constant__ SelectMemory memory, int shift) {
  __shared__ std::uint32_t counts[kWarps][kBytes];
  const int thread = static_cast<int>(threadIdx.x);
  for (int warp = 0; warp < kWarps; ++warp) counts[warp][thread] = 0;
  __syncthreads();
  const std::int64_t fibre = blockIdx.x / memory.tiles_per_fibre;
  const std::int64_t begin = (blockIdx.x - fibre * memory.tiles_per_fibre) * memory.tile;
  const std::int64_t rest = plan.fibres.length - begin;
  const int count = static_cast<int>(rest < memory.tile ? rest : memory.tile);
  const U* in = sort_input<U>(plan, fibre) + begin * plan.fibres.in.stride;
  SelectState& state = memory.states[fibre];
  // The bytes above the current one. A shift by the width of U is undefined.
  const U known = static_cast<U>(state.key);
  const int above = shift + 8;
  const bool is_first = above == static_cast<int>(sizeof(U)) * 8;
#pragma unroll 8
  for (int i = thread; i < count; i += kThreads) {
    const U key = order.key(in[i * plan.fibres.in.stride]);
    if (is_first || (key >> above) == (known >> above)) {
      atomicAdd(&counts[thread / 32][(key >> shift) & 0xff], 1u);
    }
  }
  __syncthreads();
  std::uint32_t total = 0;
  for (int warp = 0; warp < kWarps; ++warp) total += counts[warp][thread];
  if (total > 0) atomicAdd(&state.counts[thread], total);
}

// Finds the byte that the rank falls into. A block for each fibre.
__global__ void __launch_bounds__(kThreads) select_byte_kernel(SelectState* states, int shift) {
  using Scan = cub::BlockScan<std::uint32_t, kThreads>;
  __shared__ typename Scan::TempStorage shared;
  SelectState& state = states[blockIdx.x];
  const unsigned long long rank = state.rank;
  const std::uint32_t count = state.counts[threadIdx.x];
  std::uint32_t before = 0;
  Scan(shared).ExclusiveSum(count, before);
  if (before <= rank && rank - before < count) {
    state.key |= static_cast<unsigned long long>(threadIdx.x) << shift;
    state.rank = rank - before;
  }
  state.counts[threadIdx.x] = 0;
}

// The number of `is_set` threads of the block before this one, and of all. Every thread calls.
struct Place {
  int before;
  int total;
};
__device__ inline Place place_of(bool is_set, int* warp_totals) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const unsigned votes = __ballot_sync(0xffffffffu, is_set);
  if (lane == 0) warp_totals[warp] = __popc(votes);
  __syncthreads();
  Place place{__popc(votes & ((1u << lane) - 1u)), 0};
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) place.before += warp_totals[w];
    place.total += warp_totals[w];
  }
  __syncthreads();
  return place;
}

// Counts the elements of each tile before and at the sought key.
template <class U>
__global__ void __launch_bounds__(kThreads)
    select_tiles_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order,
                        const __grid_constant__ SelectMemory memory) {
  __shared__ TileCounts totals;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) totals = {0, 0};
  __syncthreads();
  const std::int64_t fibre = blockIdx.x / memory.tiles_per_fibre;
  const std::int64_t begin = (blockIdx.x - fibre * memory.tiles_per_fibre) * memory.tile;
  const std::int64_t rest = plan.fibres.length - begin;
  const int count = static_cast<int>(rest < memory.tile ? rest : memory.tile);
  const U* in = sort_input<U>(plan, fibre) + begin * plan.fibres.in.stride;
  const U sought = static_cast<U>(memory.states[fibre].key);
  TileCounts own{0, 0};
#pragma unroll 8
  for (int i = thread; i < count; i += kThreads) {
    const U key = order.key(in[i * plan.fibres.in.stride]);
    own.smaller += key < sought;
    own.equal += key == sought;
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    own.smaller += __shfl_xor_sync(0xffffffffu, own.smaller, distance);
    own.equal += __shfl_xor_sync(0xffffffffu, own.equal, distance);
  }
  if (thread % 32 == 0) {
    atomicAdd(&totals.smaller, own.smaller);
    atomicAdd(&totals.equal, own.equal);
  }
  __syncthreads();
  if (thread == 0) memory.tiles[blockIdx.x] = totals;
}

// Replaces the counts of a fibre's tiles by the counts of all tiles before. A block for each fibre.
__global__ void __launch_bounds__(kThreads)
    select_scan_kernel(const __grid_constant__ SelectMemory memory) {
  using Scan = cub::BlockScan<unsigned long long, kThreads>;
  __shared__ typename Scan::TempStorage shared;
  TileCounts* tiles = memory.tiles + blockIdx.x * memory.tiles_per_fibre;
  // Both counts in one word: their totals are below 2^32.
  unsigned long long carried = 0;
  for (std::int64_t first = 0; first < memory.tiles_per_fibre; first += kThreads) {
    const std::int64_t at = first + threadIdx.x;
    unsigned long long counts = 0;
    if (at < memory.tiles_per_fibre) {
      counts = static_cast<unsigned long long>(tiles[at].smaller) << 32 | tiles[at].equal;
    }
    unsigned long long before = 0;
    unsigned long long total = 0;
    Scan(shared).ExclusiveSum(counts, before, total);
    before += carried;
    carried += total;
    if (at < memory.tiles_per_fibre) {
      tiles[at] = {static_cast<std::uint32_t>(before >> 32), static_cast<std::uint32_t>(before)};
    }
    __syncthreads();
  }
}

// Takes the candidates of each tile: the smaller elements, then the first equal ones, each in the
// order of their positions. Of one sought element it writes the output itself.
template <class U>
__global__ void __launch_bounds__(kThreads)
    select_take_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order,
                       const __grid_constant__ SelectMemory memory) {
  __shared__ int warp_totals[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t fibre = blockIdx.x / memory.tiles_per_fibre;
  const std::int64_t tile = blockIdx.x - fibre * memory.tiles_per_fibre;
  const std::int64_t begin = tile * memory.tile;
  const std::int64_t rest = plan.fibres.length - begin;
  const int count = static_cast<int>(rest < memory.tile ? rest : memory.tile);
  const std::int64_t stride = plan.fibres.in.stride;
  const U* in = sort_input<U>(plan, fibre) + begin * stride;
  const SelectState& state = memory.states[fibre];
  const U sought = static_cast<U>(state.key);
  const auto wanted_equal = static_cast<std::int64_t>(state.rank) + 1;  // equal elements to take
  const bool takes_one = plan.count == 1;
  const std::int64_t all_smaller = plan.count - wanted_equal;
  std::int64_t smaller = memory.tiles[blockIdx.x].smaller;
  std::int64_t equal = memory.tiles[blockIdx.x].equal;
  U* keys = static_cast<U*>(memory.keys) + fibre * plan.count;
  std::uint32_t* positions = memory.positions + fibre * plan.count;
  const SortOutput<U> out = sort_output<U>(plan, fibre);
  for (int first = 0; first < count; first += kThreads) {
    // Nothing is left to take, in every thread alike.
    if (equal >= wanted_equal && (takes_one || smaller >= all_smaller)) return;
    const int i = first + thread;
    const U bits = i < count ? in[i * stride] : U(0);
    const U key = order.key(bits);
    const bool is_equal = i < count && key == sought;
    const bool is_smaller = i < count && key < sought && !takes_one;
    if (!__syncthreads_or(is_equal || is_smaller)) continue;
    const Place equal_place = place_of(is_equal, warp_totals);
    const Place smaller_place = place_of(is_smaller, warp_totals);
    const std::int64_t equal_at = equal + equal_place.before;
    if (takes_one) {
      if (is_equal && equal_at == wanted_equal - 1) out.write(0, order.stored(bits), begin + i);
    } else if (is_smaller || (is_equal && equal_at < wanted_equal)) {
      const std::int64_t at = is_smaller ? smaller + smaller_place.before : all_smaller + equal_at;
      keys[at] = key;
      positions[at] = static_cast<std::uint32_t>(begin + i);
    }
    equal += equal_place.total;
    smaller += smaller_place.total;
  }
}

// Layout of the scratch memory: states, counts of tiles, positions and keys of candidates.
struct SelectScratch {
  std::size_t states_bytes;
  std::size_t tiles_bytes;
  std::size_t positions_bytes;
  std::size_t keys_bytes;

  explicit SelectScratch(const SortPlan& plan) {
    const auto fibres = static_cast<std::size_t>(plan.fibres.count);
    const std::size_t taken = plan.count == 1 ? 0 : fibres * static_cast<std::size_t>(plan.count);
    const std::int64_t tiles = tiles_of(plan, tile_length(plan));
    const bool has_states = !fits_select_rows(plan);
    states_bytes = has_states ? aligned(fibres * sizeof(SelectState)) : 0;
    tiles_bytes =
        has_states ? aligned(fibres * static_cast<std::size_t>(tiles) * sizeof(TileCounts)) : 0;
    positions_bytes = aligned(taken * sizeof(std::uint32_t));
    keys_bytes = aligned(taken * element_size(plan.fibres.dtype));
  }

  std::size_t total() const { return states_bytes + tiles_bytes + positions_bytes + keys_bytes; }

 private:
  static std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
};

void select_by_tiles(void* stream, const SortPlan& plan, const SelectMemory& memory,
                     std::size_t states_bytes) {
  const cudaError_t status =
      cudaMemsetAsync(memory.states, 0, states_bytes, static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw_launch_error("select", stream, status);
  }
  const auto fibres = static_cast<unsigned>(plan.fibres.count);
  const auto tiles = static_cast<unsigned>(plan.fibres.count * memory.tiles_per_fibre);
  launch("select_begin", stream, blocks_for(plan.fibres.count), kThreads, 0, select_begin_kernel,
         plan, memory.states);
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    const auto order = make_key_order<U>(plan.fibres.dtype, plan.largest_first);
    for (int shift = static_cast<int>(sizeof(U)) * 8 - 8; shift >= 0; shift -= 8) {
      launch("select_count", stream, tiles, kThreads, 0, select_count_kernel<U>, plan, order,
             memory, shift);
      launch("select_byte", stream, fibres, kThreads, 0, select_byte_kernel, memory.states, shift);
    }
    launch("select_tiles", stream, tiles, kThreads, 0, select_tiles_kernel<U>, plan, order, memory);
    launch("select_scan", stream, fibres, kThreads, 0, select_scan_kernel, memory);
    launch("select_take", stream, tiles, kThreads, 0, select_take_kernel<U>, plan, order, memory);
  });
}

}  // namespace

std::size_t select_scratch_bytes(const SortPlan& plan) { return SelectScratch(plan).total(); }

void select(void* stream, const SortPlan& plan, void* scratch) {
  const SelectScratch layout(plan);
  auto* bytes = static_cast<char*>(scratch);
  SelectMemory memory;
  memory.states = reinterpret_cast<SelectState*>(bytes);
  bytes += layout.states_bytes;
  memory.tiles = reinterpret_cast<TileCounts*>(bytes);
  bytes += layout.tiles_bytes;
  memory.positions = reinterpret_cast<std::uint32_t*>(bytes);
  bytes += layout.positions_bytes;
  memory.keys = bytes;
  memory.tile = tile_length(plan);
  memory.tiles_per_fibre = tiles_of(plan, memory.tile);
  if (fits_select_rows(plan)) {
    select_rows(stream, plan, memory.keys, memory.positions);
  } else {
    select_by_tiles(stream, plan, memory, layout.states_bytes);
  }
  if (plan.count == 1) return;
  SortPlan candidates = plan;
  candidates.fibres.length = plan.count;
  sort_in_blocks(stream, candidates, {memory.keys, memory.positions});
}

}  // namespace gantry::kernels::cuda
