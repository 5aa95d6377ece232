// Scans of long rows: blocks that load tiles ahead.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/cuda/reductions/scan_look_back.cuh"

namespace gantry::kernels::cuda {

namespace {

// Note [Scans of long rows]
// A block takes one tile after the other, and has three of them in its shared memory at a time:
//  1. Tile k + 1 is on its way into the shared memory.
//  2. Tile k arrives. The scanners, a thread for each group of elements, compute the totals of the
//     groups. Then the carrier, one warp, scans these totals, publishes the tile's total and waits
//     for those before it (Note [Look-back by levels]).
//  3. The value before tile k - 1 is known. The scanners scan its elements again from there, write
//     the results, and load tile k + 2 in its place.
// The carrier waits while the scanners work, and a load takes as long as a tile. So the block waits
// for memory and for other blocks only if these are slower than its own work.
// A block has its tiles in rising order, and publishes a total of a tile before it waits for any
// tile after it. The first tile that is not done therefore waits for nothing.

constexpr int kScanners = static_cast<int>(kScanTile) / kScanGroup;
constexpr int kScanWarp = 32;
constexpr int kLongScanThreads = kScanners + kScanWarp;
constexpr int kScanStages = 3;
static_assert(kScanners == kScanGroup * kScanGroup);

// Elements of a chunk, the unit of copies, and chunks of a group.
template <class T>
constexpr int kChunkElements = 16 / static_cast<int>(sizeof(T));
template <class T>
constexpr int kGroupChunks = kScanGroup / kChunkElements<T>;
template <class T>
using ScanChunk = StoredPack<T, kChunkElements<T>>;

// The place of a chunk of a tile in shared memory. The banks are all in use both when neighbouring
// threads access neighbouring chunks, and when each has the chunks of its own group.
template <class T>
__device__ constexpr int chunk_place(int chunk) {
  constexpr int kRow = 8;  // chunks of a row of banks
  return chunk ^ (chunk / kRow % kGroupChunks<T>);
}

// The place of the total of group `group` of a tile. The carrier's threads, each with 16 of them in
// a row, use different banks.
__device__ constexpr int total_place(int group) { return group + group / kScanGroup; }

// The shared memory of a block. What the carrier and the scanners exchange exists twice, for one
// tile and the next.
template <class T, class Acc>
struct LongScanMemory {
  ScanChunk<T> tiles[kScanStages][kScanTile / kChunkElements<T>];
  // The total of each group; the carrier puts the running value before it in its place.
  Acc groups[2][kScanners + kScanGroup];
  Acc before[2][kScanGroup];  // the value before each group of groups
  Acc running[kTileLevels + 2];
  std::uint32_t tasks[8];  // the last ones that the block took
};

// The tiles of all fibres, one after the other, as tasks of the blocks.
struct ScanTasks {
  std::int64_t tiles = 0;   // of a fibre
  std::uint32_t count = 0;  // of all fibres
  // Each block has one task at most, and takes no second one.
  bool is_single = false;

  struct Place {
    std::int64_t fibre;
    std::int64_t tile;
  };
  __device__ Place place(std::uint32_t task) const {
    if (count == tiles) return {0, task};
    const std::uint32_t fibre = task / static_cast<std::uint32_t>(tiles);
    return {fibre, task - fibre * static_cast<std::uint32_t>(tiles)};
  }
};

// Waits for the other scanners.
__device__ inline void meet_scanners() {
  asm volatile("bar.sync 1, %0;" ::"n"(kScanners) : "memory");
}

// What the scanners of a block do.
template <class T, ScanOp kOp>
class Scanner {
 public:
  using Step = ScanStep<ScanAccumulator<T>, kOp>;
  using Acc = typename Step::Acc;
  using Memory = LongScanMemory<T, Acc>;

  __device__ Scanner(const FibrePlan& plan, const ScanTasks& tasks, Memory& memory)
      : plan_(plan), tasks_(tasks), memory_(memory) {}

  // Starts to load a tile, if there is one. Elements after its end become neutral.
  __device__ void load(std::uint32_t task, int stage) const {
    if (task < tasks_.count) {
      const auto [fibre, tile] = tasks_.place(task);
      const std::int64_t first = tile * kScanTile;
      const T* in =
          static_cast<const T*>(plan_.in.data) + fibre * plan_.in.outer.strides[0] + first;
      const std::int64_t rest = plan_.length - first;
      if (rest >= kScanTile) {
#pragma unroll
        for (int i = 0; i < kGroupChunks<T>; ++i) {
          const int chunk = i * kScanners + thread_;
          __pipeline_memcpy_async(&memory_.tiles[stage][chunk_place<T>(chunk)],
                                  in + chunk * kChunkElements<T>, 16);
        }
      } else {
        load_last(in, static_cast<int>(rest), stage);
      }
    }
    __pipeline_commit();
  }

  // Waits for tile k; load() was called for tile k + 1, too. Stores the total of the own group.
  __device__ void sum(int stage, int parity) const {
    __pipeline_wait_prior(1);
    meet_scanners();
    Acc total = Step::neutral();
#pragma unroll
    for (int i = 0; i < kGroupChunks<T>; ++i) {
      const ScanChunk<T> chunk = own_chunk(stage, i);
#pragma unroll
      for (int e = 0; e < kChunkElements<T>; ++e) {
        total = Step::combine(total, static_cast<Acc>(chunk.values[e]));
      }
    }
    memory_.groups[parity][total_place(thread_)] = total;
  }

  // Writes the results of a tile.
  __device__ void write(std::uint32_t task, int stage, int parity) const {
    const Acc before = Step::combine(memory_.before[parity][thread_ / kScanGroup],
                                     memory_.groups[parity][total_place(thread_)]);
    ScanChunk<T> own[kGroupChunks<T>];
#pragma unroll
    for (int i = 0; i < kGroupChunks<T>; ++i) own[i] = own_chunk(stage, i);
    Acc running = Step::neutral();
#pragma unroll
    for (int i = 0; i < kGroupChunks<T>; ++i) {
#pragma unroll
      for (int e = 0; e < kChunkElements<T>; ++e) {
        running = Step::combine(running, static_cast<Acc>(own[i].values[e]));
        own[i].values[e] = convert<T>(Step::combine(before, running));
      }
      own_chunk(stage, i) = own[i];
    }
    meet_scanners();
    const auto [fibre, tile] = tasks_.place(task);
    const std::int64_t first = tile * kScanTile;
    T* out = static_cast<T*>(plan_.out.data) + fibre * plan_.out.outer.strides[0] + first;
    const std::int64_t rest = plan_.length - first;
    if (rest < kScanTile) {
      write_last(out, static_cast<int>(rest), stage);
      return;
    }
#pragma unroll
    for (int i = 0; i < kGroupChunks<T>; ++i) {
      const int chunk = i * kScanners + thread_;
      reinterpret_cast<ScanChunk<T>*>(out)[chunk] = memory_.tiles[stage][chunk_place<T>(chunk)];
    }
  }

 private:
  // For the last tile of a fibre, whose end may be within a chunk.
  __device__ void load_last(const T* in, int rest, int stage) const {
#pragma unroll 1
    for (int i = 0; i < kGroupChunks<T>; ++i) {
      const int chunk = i * kScanners + thread_;
      ScanChunk<T> elements;
#pragma unroll
      for (int e = 0; e < kChunkElements<T>; ++e) {
        const int at = chunk * kChunkElements<T> + e;
        elements.values[e] = at < rest ? in[at] : convert<T>(Step::neutral());
      }
      memory_.tiles[stage][chunk_place<T>(chunk)] = elements;
    }
  }

  __device__ void write_last(T* out, int rest, int stage) const {
#pragma unroll 1
    for (int i = 0; i < kGroupChunks<T>; ++i) {
      const int chunk = i * kScanners + thread_;
      const ScanChunk<T> results = memory_.tiles[stage][chunk_place<T>(chunk)];
#pragma unroll
      for (int e = 0; e < kChunkElements<T>; ++e) {
        const int at = chunk * kChunkElements<T> + e;
        if (at < rest) out[at] = results.values[e];
      }
    }
  }

  __device__ ScanChunk<T>& own_chunk(int stage, int i) const {
    return memory_.tiles[stage][chunk_place<T>(thread_ * kGroupChunks<T> + i)];
  }

  const FibrePlan& plan_;
  const ScanTasks& tasks_;
  Memory& memory_;
  const int thread_ = static_cast<int>(threadIdx.x);
};

// Scans the totals of a tile's groups: the running value before each in its group of groups, and
// the value before each group of groups. Every thread of the carrier calls.
template <class Step, class Memory>
__device__ void carry(const TileTotals& totals, const ScanTasks& tasks, std::uint32_t task,
                      Memory& memory, int parity) {
  using Acc = typename Step::Acc;
  const int lane = static_cast<int>(threadIdx.x) % kScanWarp;
  const int own = lane % kScanGroup;  // both halves of the warp compute the same
  Acc* groups = memory.groups[parity] + total_place(own * kScanGroup);
  Acc values[kScanGroup];
#pragma unroll
  for (int i = 0; i < kScanGroup; ++i) values[i] = groups[i];
  __syncwarp();
  Acc total = Step::neutral();
#pragma unroll
  for (int i = 0; i < kScanGroup; ++i) {
    if (lane < kScanGroup) groups[i] = total;
    total = Step::combine(total, values[i]);
  }
  Acc before = Step::neutral();
#pragma unroll
  for (int i = 0; i < kScanGroup - 1; ++i) {
    const Acc other = __shfl_sync(0xffffffffu, total, i);
    if (i < own) before = Step::combine(before, other);
  }
  const Acc tile_total = __shfl_sync(0xffffffffu, Step::combine(before, total), kScanGroup - 1);
  const auto [fibre, tile] = tasks.place(task);
  const Acc above =
      value_before_tile<Step>(totals, fibre, tile, tasks.tiles, tile_total, memory.running);
  if (lane < kScanGroup) memory.before[parity][lane] = Step::combine(above, before);
}

// Scans tiles of fibres for which is_long_scan() holds, as Note [Scans of long rows] tells.
template <class T, ScanOp kOp>
__global__ void __launch_bounds__(kLongScanThreads, 4)
    scan_long_rows(const __grid_constant__ FibrePlan plan,
                   const __grid_constant__ TileTotals totals,
                   const __grid_constant__ ScanTasks tasks) {
  using Worker = Scanner<T, kOp>;
  extern __shared__ __align__(16) char shared_bytes[];
  auto& memory = *reinterpret_cast<typename Worker::Memory*>(shared_bytes);
  const bool is_carrier = threadIdx.x >= kScanners;
  const bool is_taker = threadIdx.x == kScanners;
  const auto take = [&] { return tasks.is_single ? tasks.count : atomicAdd(totals.next_tile, 1u); };
  const auto task = [&](int k) -> std::uint32_t& { return memory.tasks[k % 8]; };
  const Worker worker(plan, tasks, memory);
  if (is_taker) task(0) = atomicAdd(totals.next_tile, 1u);
  __syncthreads();
  if (!is_carrier) worker.load(task(0), 0);
  if (is_taker) {
    task(1) = take();
    task(2) = take();
  }
  __syncthreads();
  if (!is_carrier) worker.load(task(1), 1);
  int stage = 0;               // of tile k
  int last = kScanStages - 1;  // of tile k - 1, then of tile k + 2
  for (int k = 0;; ++k) {
    const bool is_done = task(k) >= tasks.count;
    if (!is_carrier && !is_done) worker.sum(stage, k % 2);
    __syncthreads();
    if (is_carrier) {
      if (is_done) break;
      const std::uint32_t next = is_taker ? take() : 0;
      carry<typename Worker::Step>(totals, tasks, task(k), memory, k % 2);
      if (is_taker) task(k + 3) = next;
    } else {
      if (k > 0) worker.write(task(k - 1), last, (k - 1) % 2);
      if (is_done) break;
      worker.load(task(k + 2), last);
    }
    last = stage;
    stage = stage == kScanStages - 1 ? 0 : stage + 1;
  }
}

// True if every fibre begins on a chunk, and the next one a stride after it.
template <class T>
bool has_chunks(const Fibres& rows) {
  return rows.stride == 1 && reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 &&
         rows.outer.ndim <= 1 && rows.outer.strides[0] % kChunkElements<T> == 0;
}

// The results are as wide as the elements, and the work is little.
template <class T, ScanOp kOp>
constexpr bool kHasLongScan = std::is_same_v<T, ScanOut<T>> &&
                              sizeof(T) <= 4 && kOp != ScanOp::log_sum_exp;

// True if scan_long_rows can scan the plan.
template <class T>
bool is_long_scan(const FibrePlan& plan) {
  return plan.length > kScanTile && has_chunks<T>(plan.in) && has_chunks<T>(plan.out);
}

template <class T, ScanOp kOp>
void launch_long_scan(void* stream, const FibrePlan& plan, const TileTotals& totals,
                      std::int64_t tiles) {
  constexpr int kBytes = sizeof(typename Scanner<T, kOp>::Memory);
  constexpr std::int64_t kBlocks = 4;  // of a multiprocessor
  const auto kernel = scan_long_rows<T, kOp>;
  int device = 0;
  int multiprocessors = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (status == cudaSuccess) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  }
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw_launch_error("scan_long_rows", stream, status);
  }
  ScanTasks tasks;
  tasks.tiles = tiles;
  tasks.count = static_cast<std::uint32_t>(plan.count * tiles);
  const std::int64_t most = kBlocks * multiprocessors;
  tasks.is_single = tasks.count <= most;
  const auto blocks = static_cast<unsigned>(tasks.is_single ? tasks.count : most);
  launch("scan_long_rows", stream, blocks, kLongScanThreads, kBytes, kernel, plan, totals, tasks);
}

}  // namespace

}  // namespace gantry::kernels::cuda
