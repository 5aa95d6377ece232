// Running extrema on the GPU. The best element of an interval is an associative state, so one of a
// few long fibres is scanned by tiles: the best of each tile, the best of all tiles before, the
// elements.
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordering/cumulative_rows.cuh"
#include "kernels/impl/cumulative.inl"

namespace gantry::kernels::cuda {

namespace {

constexpr int kItems = 8;
// Elements of a tile of a long fibre.
constexpr std::int64_t kTile = kThreads * kItems;
// Longest fibre that one thread scans, and fewest fibres side by side that fill a GPU so.
constexpr std::int64_t kThreadFibre = 16;
constexpr std::int64_t kManyFibres = 4096;
// Longest fibre that a warp scans in any case, and fewest fibres that fill a GPU with warps.
constexpr std::int64_t kWarpFibre = 1024;
constexpr std::int64_t kManyWarps = 2048;

bool is_by_thread(const SortPlan& plan) {
  return plan.fibres.length <= kThreadFibre ||
         (plan.fibres.is_column_wise() && plan.fibres.count >= kManyFibres);
}

bool is_by_warp(const SortPlan& plan) {
  return plan.fibres.length <= kWarpFibre || plan.fibres.count >= kManyWarps;
}

std::int64_t tiles_of(const SortPlan& plan) { return (plan.fibres.length + kTile - 1) / kTile; }

// The best element of an interval. Position -1: none.
template <class U>
struct Best {
  U key;
  std::int64_t position;
};

// Of equal elements the later one.
template <class U>
struct Later {
  __device__ Best<U> operator()(const Best<U>& a, const Best<U>& b) const {
    return b.position >= 0 && (a.position < 0 || b.key >= a.key) ? b : a;
  }
};

// The elements of a tile that a thread has: kItems neighbours, or the best of them.
template <class U>
__device__ Best<U> own_best(const U (&keys)[kItems], std::int64_t first, std::int64_t length) {
  Best<U> best{0, -1};
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (first + item < length) best = Later<U>()(best, {keys[item], first + item});
  }
  return best;
}

// Loads the tile that begins at `begin` through shared memory, so that accesses of neighbouring
// threads are side by side.
template <class U>
__device__ void load_keys(const U* in, std::int64_t stride, std::int64_t begin, std::int64_t length,
                          const KeyOrder<U>& order, U* staged, U (&keys)[kItems]) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int at = item * kThreads + thread;
    if (begin + at < length) staged[at] = order.key(in[(begin + at) * stride]);
  }
  __syncthreads();
#pragma unroll
  for (int item = 0; item < kItems; ++item) keys[item] = staged[thread * kItems + item];
  __syncthreads();
}

// The best position of each tile.
template <class U>
__global__ void __launch_bounds__(kThreads)
    cumulative_tiles_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order,
                            std::int64_t tiles, Best<U>* bests) {
  using Scan = cub::BlockScan<Best<U>, kThreads>;
  __shared__ typename Scan::TempStorage shared;
  __shared__ U staged[kTile];
  const std::int64_t fibre = blockIdx.x / tiles;
  const std::int64_t begin = (blockIdx.x - fibre * tiles) * kTile;
  U keys[kItems];
  load_keys<U>(sort_input<U>(plan, fibre), plan.fibres.in.stride, begin, plan.fibres.length, order,
               staged, keys);
  const Best<U> own = own_best<U>(keys, begin + static_cast<std::int64_t>(threadIdx.x) * kItems,
                                  plan.fibres.length);
  Best<U> running;
  Best<U> total;
  Scan(shared).InclusiveScan(own, running, Later<U>(), total);
  if (threadIdx.x == 0) bests[blockIdx.x] = total;
}

// Replaces the best of each tile by the best of all tiles before. A block for each fibre.
template <class U>
__global__ void __launch_bounds__(kThreads)
    cumulative_scan_kernel(std::int64_t tiles, Best<U>* bests) {
  using Scan = cub::BlockScan<Best<U>, kThreads>;
  __shared__ typename Scan::TempStorage shared;
  Best<U>* own = bests + blockIdx.x * tiles;
  Best<U> carried{0, -1};
  for (std::int64_t first = 0; first < tiles; first += kThreads) {
    const std::int64_t at = first + threadIdx.x;
    const Best<U> best = at < tiles ? own[at] : Best<U>{0, -1};
    Best<U> before;
    Best<U> total;
    Scan(shared).ExclusiveScan(best, before, Best<U>{0, -1}, Later<U>(), total);
    if (at < tiles) own[at] = Later<U>()(carried, before);
    carried = Later<U>()(carried, total);
    __syncthreads();
  }
}

// The running extremum of a tile. `before` has the best of the tiles before; null: there are none.
template <class U>
__global__ void __launch_bounds__(kThreads)
    cumulative_write_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order,
                            std::int64_t tiles, const Best<U>* before) {
  using Scan = cub::BlockScan<Best<U>, kThreads>;
  __shared__ typename Scan::TempStorage shared;
  __shared__ union {
    U keys[kTile];
    std::int64_t positions[kTile];
  } staged;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t fibre = blockIdx.x / tiles;
  const std::int64_t begin = (blockIdx.x - fibre * tiles) * kTile;
  const std::int64_t length = plan.fibres.length;
  const std::int64_t stride = plan.fibres.in.stride;
  const U* in = sort_input<U>(plan, fibre);
  U keys[kItems];
  load_keys<U>(in, stride, begin, length, order, staged.keys, keys);
  const std::int64_t first = begin + static_cast<std::int64_t>(thread) * kItems;
  const Best<U> carried = before != nullptr ? before[blockIdx.x] : Best<U>{0, -1};
  Best<U> best;
  Scan(shared).ExclusiveScan(own_best<U>(keys, first, length), best, carried, Later<U>());
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (first + item < length) best = Later<U>()(best, {keys[item], first + item});
    staged.positions[thread * kItems + item] = best.position;
  }
  __syncthreads();
  const SortOutput<U> out = sort_output<U>(plan, fibre);
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int at = item * kThreads + thread;
    if (begin + at < length) {
      const std::int64_t position = staged.positions[at];
      out.write(begin + at, order.stored(in[position * stride]), position);
    }
  }
}

template <class U>
void launch_cumulative(void* stream, const SortPlan& plan, Best<U>* bests) {
  const auto order = make_extremum_order<U>(plan.fibres.dtype, plan.largest_first);
  if (is_by_thread(plan)) {
    // Few fibres are spread over small blocks.
    const int threads = plan.fibres.count < kThreads * kManyWarps ? 64 : kThreads;
    launch("cumulative_fibres", stream,
           blocks_for((plan.fibres.count + threads - 1) / threads * kThreads), threads, 0,
           cumulative_fibres_kernel<U>, plan, order);
    return;
  }
  if (is_by_warp(plan)) {
    launch("cumulative_rows", stream, blocks_for(plan.fibres.count * 32), kThreads, 0,
           plan.fibres.length <= 64 ? cumulative_rows_kernel<U, 2> : cumulative_rows_kernel<U, 8>,
           plan, order);
    return;
  }
  const std::int64_t tiles = tiles_of(plan);
  const auto blocks = static_cast<unsigned>(plan.fibres.count * tiles);
  if (tiles > 1) {
    launch("cumulative_tiles", stream, blocks, kThreads, 0, cumulative_tiles_kernel<U>, plan, order,
           tiles, bests);
    launch("cumulative_scan", stream, static_cast<unsigned>(plan.fibres.count), kThreads, 0,
           cumulative_scan_kernel<U>, tiles, bests);
  }
  launch("cumulative_write", stream, blocks, kThreads, 0, cumulative_write_kernel<U>, plan, order,
         tiles, tiles > 1 ? bests : nullptr);
}

}  // namespace

std::size_t cumulative_scratch_bytes(const SortPlan& plan) {
  const std::int64_t tiles = tiles_of(plan);
  if (is_by_thread(plan) || is_by_warp(plan) || tiles == 1) return 0;
  return static_cast<std::size_t>(plan.fibres.count * tiles) * sizeof(Best<std::uint64_t>);
}

void cumulative_extremum(void* stream, const SortPlan& plan, void* scratch) {
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    launch_cumulative<U>(stream, plan, static_cast<Best<U>*>(scratch));
  });
}

}  // namespace gantry::kernels::cuda
