// Scans of long rows on the GPU: blocks that add up one tile before they scan the preceding one.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scans/long_scan.cuh"

namespace gantry::kernels::cuda {

namespace {

// Note [Scans of long rows]
// A block of scan_long_rows scans one tile after the other, and holds several. All but one are
// complete in shared memory: their totals are published. The last one is arriving. A round of the
// block:
//  1. Waits for the arriving tile, and reads the totals before the oldest complete tile, as far as
//     they are published (Note [Look-back by levels]).
//  2. Adds up the arriving tile and publishes its total.
//  3. Waits for those totals before the oldest tile that were missing.
//  4. Takes the number of another tile.
//  5. Scans the oldest tile, writes the results, and loads the other tile in its place.
// Between the number of a tile and its published total, a block waits for nothing but the load.
// So a wait of one block for another delays no further one. Step 3 hardly waits: the tiles before
// the oldest one published their totals one or two rounds ago. The other blocks of the
// multiprocessor work while this one waits for its loads.
//
// No block waits forever. A tile has a number only once its block runs, and its total needs no
// other tile. The total of a group needs only tiles of lower numbers: the rest of the group, and
// groups before it. So the published totals advance from the lowest number up, however few blocks
// run at a time.
//
// A warp has 32 consecutive groups of elements, and is the only one that accesses them in shared
// memory. So the warps of a block meet three times a round: when they know their totals, when they
// know the value before the tile, and when they know the number of the next tile.

// Blocks of scan_long_rows that a multiprocessor holds: as many as its shared memory has room for,
// and of narrow elements one fewer than its threads allow.
template <class T>
constexpr int kLongBlocks = sizeof(T) == 8   ? 2
                            : sizeof(T) == 4 ? 4
                                             : 7;

// Scans the fibres that launch_long_scan() takes, as Note [Scans of long rows] tells.
template <class T, ScanOp kOp>
__global__ void __launch_bounds__(kLongThreads, kLongBlocks<T>)
    scan_long_rows(const __grid_constant__ FibrePlan plan,
                   const __grid_constant__ TileTotals totals,
                   const __grid_constant__ ScanTasks tasks) {
  using Scan = LongScan<T, kOp>;
  using Acc = typename Scan::Acc;
  extern __shared__ __align__(16) unsigned char bytes[];
  auto& memory = *reinterpret_cast<typename Scan::Memory*>(bytes);
  const Scan scan(plan, totals, tasks, memory);
  // A thread of a warp that has no level to look back, unless a fibre has 2^24 tiles. The compiler
  // merges the calls of atomicAdd() of a warp, and has the warp wait for the result at once. So it
  // is atomicInc(), with a limit that is not reached.
  const bool takes = threadIdx.x == kLongThreads - 64;
  const auto take = [&] { return atomicInc(totals.next_tile, 0xfffffffeu); };
  if (threadIdx.x == 0) {
    std::uint32_t first = 0;
    for (int level = 0; level < kTileLevels; ++level) {
      memory.first_units[level] = first;
      first += tasks.tiles >> (level * kScanGroupBits);
    }
  }
  if (takes) memory.task = take();
  __syncthreads();
  const std::uint32_t none = tasks.count;
  std::uint32_t arriving = memory.task;
  // The complete tiles, the newest first, and the values of sum().
  std::uint32_t complete[kHeldTiles];
  Acc in_group[kHeldTiles];
  for (std::uint32_t& task : complete) task = none;
  scan.load(arriving, 0);
  for (int buffer = 0;;) {
    const int next_buffer = buffer + 1 == kTileBuffers ? 0 : buffer + 1;
    const bool arrives = arriving < none;
    const std::uint32_t oldest = complete[kHeldTiles - 1];
    const bool completes = oldest < none;
    if (arrives) scan.wait();
    PolledTotal polled;
    if (completes) polled = scan.poll_before(oldest);
    Acc next_in_group = Scan::Step::neutral();
    if (arrives) next_in_group = scan.sum(buffer);
    __syncthreads();
    if (arrives) scan.publish_total(arriving, buffer);
    if (completes) scan.look_back(oldest, polled);
    __syncthreads();
    std::uint32_t next = none;
    if (takes && arrives) next = take();
    if (completes) scan.write(oldest, next_buffer, in_group[kHeldTiles - 1]);
    if (takes) memory.task = next;
    __syncthreads();
#pragma unroll
    for (int i = kHeldTiles - 1; i > 0; --i) {
      complete[i] = complete[i - 1];
      in_group[i] = in_group[i - 1];
    }
    complete[0] = arrives ? arriving : none;
    in_group[0] = next_in_group;
    bool holds = false;
    for (const std::uint32_t task : complete) holds |= task < none;
    if (!holds) break;
    arriving = memory.task;
    buffer = next_buffer;
    scan.load(arriving, buffer);
  }
}

// True for fibres of whole chunks, one after the other.
template <class T>
bool has_chunks(const Fibres& rows) {
  if (rows.stride != 1 || reinterpret_cast<std::uintptr_t>(rows.data) % 16 != 0) return false;
  for (int d = 0; d < rows.outer.ndim; ++d) {
    if (rows.outer.strides[d] % kChunkElements<T> != 0) return false;
  }
  return true;
}

// The results are as wide as the elements, and the work is little.
template <class T, ScanOp kOp>
constexpr bool kHasLongScan = std::is_same_v<T, ScanOut<T>>&& kOp != ScanOp::log_sum_exp;

// Scans by scan_long_rows. Returns false, and does nothing, if the plan is not for it: then each
// block has one tile, or the rows have no chunks.
template <class T, ScanOp kOp>
bool launch_long_scan(void* stream, const FibrePlan& plan, const TileTotals& totals,
                      std::int64_t tiles) {
  if (tiles == 1 || !has_chunks<T>(plan.in) || !has_chunks<T>(plan.out)) return false;
  int device = 0;
  int multiprocessors = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  const std::int64_t blocks = std::int64_t{kLongBlocks<T>} * multiprocessors;
  if (status == cudaSuccess && plan.count * tiles <= blocks) return false;
  const auto kernel = scan_long_rows<T, kOp>;
  constexpr std::size_t kBytes = sizeof(typename LongScan<T, kOp>::Memory);
  if (status == cudaSuccess) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kBytes));
  }
  if (status == cudaSuccess) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared);
  }
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw_launch_error("scan_long_rows", stream, status);
  }
  ScanTasks tasks;
  tasks.tiles = static_cast<std::uint32_t>(tiles);
  tasks.count = static_cast<std::uint32_t>(plan.count * tiles);
  while (((tiles - 1) >> (tasks.levels * kScanGroupBits)) > 0) ++tasks.levels;
  launch("scan_long_rows", stream, static_cast<unsigned>(blocks), kLongThreads, kBytes, kernel,
         plan, totals, tasks);
  return true;
}

}  // namespace

}  // namespace gantry::kernels::cuda
