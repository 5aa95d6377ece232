// The steps of a block that scans long rows: Note [Scans of long rows].
#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scans/scan_look_back.cuh"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {

namespace {

constexpr int kLongThreads = static_cast<int>(kScanTile) / kScanGroup;
constexpr int kLongWarps = kLongThreads / 32;
// Groups of groups: of elements of a tile, and of threads of a warp.
constexpr int kTileGroups = kLongThreads / kScanGroup;
static_assert(kTileGroups == kScanGroup && kTileLevels <= kLongWarps);
// Complete tiles that a block holds at most, and the places of tiles in its shared memory.
constexpr int kHeldTiles = 2;
constexpr int kTileBuffers = kHeldTiles + 1;

// Elements of a chunk, the unit of accesses, and chunks of a thread.
template <class T>
constexpr int kChunkElements = 16 / static_cast<int>(sizeof(T));
template <class T>
constexpr unsigned kThreadChunks = kScanGroup / kChunkElements<T>;
template <class T>
using ScanChunk = StoredPack<T, kChunkElements<T>>;

// The places of a warp's chunks in its shared memory. Chunk c is in place c ^ (c / 8 %
// kThreadChunks). So eight neighbouring threads use all banks, both with neighbouring chunks and
// with one each of their groups. The place of chunk i of a thread's group:
template <class T>
__device__ unsigned own_place(unsigned lane, unsigned i) {
  constexpr unsigned kChunks = kThreadChunks<T>;
  return lane * kChunks + (i ^ (lane * kChunks / 8 % kChunks));
}
// The place of chunk 32 * i + lane.
template <class T>
__device__ unsigned wide_place(unsigned lane, unsigned i) {
  return 32 * i + (lane ^ ((32 / 8 * i + lane / 8) % kThreadChunks<T>));
}

// The shared memory of a block.
template <class T, class Acc>
struct LongScanMemory {
  ScanChunk<T> tiles[kTileBuffers][kLongWarps][32 * kThreadChunks<T>];
  // The totals of the groups of elements. The last of each row is unused: it keeps the rows on
  // different banks.
  Acc totals[kTileGroups][kScanGroup + 1];
  Acc group_totals[kTileGroups];
  Acc before_groups[kTileBuffers][kTileGroups];  // the running values before the groups of groups
  Acc siblings[kLongWarps][kScanGroup];          // totals that a warp has read
  Acc running[kTileLevels];                // the running value of each level before the oldest tile
  std::uint32_t task;                      // the number of the next tile
  std::uint32_t first_units[kTileLevels];  // of each level of a fibre
};

// The tiles of all fibres, one after the other, are the tasks of the blocks.
struct ScanTasks {
  std::uint32_t tiles = 0;  // of a fibre
  std::uint32_t count = 0;  // of all fibres
  int levels = 0;           // of the totals before a fibre's last tile
};

// The part of one thread in the scan of a block.
template <class T, ScanOp kOp>
class LongScan {
 public:
  using Step = ScanStep<ScanAccumulator<T>, kOp>;
  using Acc = typename Step::Acc;
  using Memory = LongScanMemory<T, Acc>;

  __device__ LongScan(const FibrePlan& plan, const TileTotals& totals, const ScanTasks& tasks,
                      Memory& memory)
      : plan_(plan), totals_(totals), tasks_(tasks), memory_(memory) {}

  // Starts to load a tile, if the task exists. Elements after its end become neutral.
  __device__ void load(std::uint32_t task, int buffer) const {
    if (task < tasks_.count) {
      const auto [fibre, tile] = place(task);
      const std::int64_t first = tile * kScanTile;
      const T* in = static_cast<const T*>(plan_.in.data) + plan_.in.outer.offset(fibre) + first +
                    warp_first();
      const std::int64_t rest = plan_.length - first;
      if (rest >= kScanTile) {
        const auto* chunks = reinterpret_cast<const ScanChunk<T>*>(in) + lane_;
#pragma unroll
        for (unsigned i = 0; i < kThreadChunks<T>; ++i) {
          __pipeline_memcpy_async(&wide_chunk(buffer, i), chunks + i * 32, 16);
        }
      } else {
        load_last(in, static_cast<int>(rest) - warp_first(), buffer);
      }
    }
    __pipeline_commit();
  }

  // Waits for the tile that was loaded.
  __device__ void wait() const {
    __pipeline_wait_prior(0);
    __syncwarp();
  }

  // Adds up the thread's elements of a tile that has arrived. Returns the running value of the
  // elements before them in their group of groups. The totals of the block's groups are known when
  // its threads have met.
  __device__ Acc sum(int buffer) const {
    Acc total = Step::neutral();
#pragma unroll
    for (unsigned i = 0; i < kThreadChunks<T>; ++i) {
      const ScanChunk<T> chunk = own_chunk(buffer, i);
#pragma unroll
      for (int e = 0; e < kChunkElements<T>; ++e) {
        total = Step::combine(total, static_cast<Acc>(chunk.values[e]));
      }
    }
    const unsigned in_group = thread_ % kScanGroup;
    Acc* totals = memory_.totals[thread_ / kScanGroup];
    totals[in_group] = total;
    __syncwarp();
    const Acc before = running_in_group(totals, in_group);
    if (in_group == kScanGroup - 1) {
      memory_.group_totals[thread_ / kScanGroup] = Step::combine(before, total);
    }
    return before;
  }

  // Publishes the total of the tile of the preceding sum(). The last warp does.
  __device__ void publish_total(std::uint32_t task, int buffer) const {
    if (warp_ != kLongWarps - 1) return;
    const unsigned group = lane_ % kTileGroups;
    const Acc before = running_in_group(memory_.group_totals, group);
    const auto [fibre, tile] = place(task);
    // As the last thread of the block has it.
    Acc total = Step::combine(before, memory_.group_totals[kTileGroups - 1]);
    if (lane_ == 31) publish(unit_of(fibre, 0, tile), total);
    memory_.before_groups[buffer][group] = before;
    std::uint32_t unit = tile;
    if (unit % kScanGroup != kScanGroup - 1) return;
    total = __shfl_sync(0xffffffffu, total, 31);
    for (unsigned level = 0; unit % kScanGroup == kScanGroup - 1; ++level) {
      total = Step::combine(siblings_value(fibre, level, unit, PolledTotal{}), total);
      unit /= kScanGroup;
      if (lane_ == 0) publish(unit_of(fibre, level + 1, unit), total);
    }
  }

  // Reads a total before the tile, of the warp's level, that may not be published yet.
  __device__ PolledTotal poll_before(std::uint32_t task) const {
    const auto [fibre, tile] = place(task);
    const std::uint32_t unit = unit_at(tile, warp_);
    const std::uint32_t before = unit % kScanGroup;
    PolledTotal result;
    if (lane_ < before) {
      result.poll(unit_of(fibre, warp_, unit - before + lane_));
    }
    return result;
  }

  // Waits for the totals before the tile. Their running values are known when the block's threads
  // have met.
  __device__ void look_back(std::uint32_t task, const PolledTotal& polled) const {
    if (static_cast<int>(warp_) >= tasks_.levels) return;
    const auto [fibre, tile] = place(task);
    const Acc value = siblings_value(fibre, warp_, unit_at(tile, warp_), polled);
    if (lane_ == 0) memory_.running[warp_] = value;
  }

  // Scans a tile and writes the results. `in_group` is what sum() returned for it.
  __device__ void write(std::uint32_t task, int buffer, Acc in_group) const {
    const auto [fibre, tile] = place(task);
    Acc before = Step::neutral();
#pragma unroll 4
    for (int level = tasks_.levels - 1; level >= 0; --level) {
      before = Step::combine(before, memory_.running[level]);
    }
    before = Step::combine(before, memory_.before_groups[buffer][thread_ / kScanGroup]);
    before = Step::combine(before, in_group);
    Acc running = Step::neutral();
    Acc result = before;
    [[maybe_unused]] bool fails = false;
#pragma unroll
    for (unsigned i = 0; i < kThreadChunks<T>; ++i) {
      ScanChunk<T> chunk = own_chunk(buffer, i);
#pragma unroll
      for (int e = 0; e < kChunkElements<T>; ++e) {
        running = Step::combine(running, static_cast<Acc>(chunk.values[e]));
        result = Step::combine(before, running);
        chunk.values[e] = static_cast<T>(result);
        if constexpr (kBeginsAgain<T, kOp>) fails |= !is_finite(chunk.values[e]);
      }
      own_chunk(buffer, i) = chunk;
    }
    if constexpr (kRestarts<T, kOp>) {
      if constexpr (!kBeginsAgain<T, kOp>) fails = !is_finite(result);
      const std::int64_t end = plan_.length - tile * kScanTile;
      if (fails && thread_ * kScanGroup < end) {
        totals_.restart_at(fibre, kBeginsAgain<T, kOp> ? 0 : tile, tasks_.tiles);
      }
      if (thread_ == kLongThreads - 1) totals_.lasts[task] = result;
    }
    // A result after a NaN is a NaN, of sums and of products.
    if (result != result) make_canonical(buffer);
    __syncwarp();
    const std::int64_t first = tile * kScanTile;
    T* out = static_cast<T*>(plan_.out.data) + plan_.out.outer.offset(fibre) + first + warp_first();
    const std::int64_t rest = plan_.length - first;
    if (rest >= kScanTile) {
#pragma unroll
      for (unsigned i = 0; i < kThreadChunks<T>; ++i) {
        reinterpret_cast<ScanChunk<T>*>(out)[i * 32 + lane_] = wide_chunk(buffer, i);
      }
    } else {
      write_last(out, static_cast<int>(rest) - warp_first(), buffer);
    }
  }

 private:
  struct Place {
    std::uint32_t fibre;
    std::uint32_t tile;
  };
  __device__ Place place(std::uint32_t task) const {
    if (tasks_.count == tasks_.tiles) return {0, task};
    const std::uint32_t fibre = task / tasks_.tiles;
    return {fibre, task - fibre * tasks_.tiles};
  }

  __device__ static std::uint32_t unit_at(std::uint32_t tile, unsigned level) {
    return tile >> (level * kScanGroupBits);
  }
  // The published total of a unit of a level.
  __device__ PublishedTotal* unit_of(std::uint32_t fibre, unsigned level,
                                     std::uint32_t unit) const {
    return totals_.totals + fibre * totals_.per_fibre + memory_.first_units[level] + unit;
  }

  // Waits for the preceding units of the group of a level's unit, and returns their running value.
  // `polled` is the total of the lane's unit, if it is known. Every thread of a warp calls.
  __device__ Acc siblings_value(std::uint32_t fibre, unsigned level, std::uint32_t unit,
                                const PolledTotal& polled) const {
    const std::uint32_t before = unit % kScanGroup;
    Acc* siblings = memory_.siblings[warp_];
    __syncwarp();  // the preceding call has read
    if (lane_ < before) {
      siblings[lane_] = polled.is_complete()
                            ? polled.template value<Acc>()
                            : await<Acc>(unit_of(fibre, level, unit - before + lane_));
    }
    __syncwarp();
    return running_value<Step>(siblings, static_cast<int>(before));
  }

  // Note [Canonical NaN]: the thread's results as from_accumulator() has them.
  __device__ void make_canonical(int buffer) const {
#pragma unroll 1
    for (unsigned i = 0; i < kThreadChunks<T>; ++i) {
      for (T& value : own_chunk(buffer, i).values) {
        value = from_accumulator<T>(static_cast<AccumulatorType<T>>(value));
      }
    }
  }

  // The running value of the first `count` totals of a group, fewer than all. The threads of a warp
  // have different counts.
  __device__ static Acc running_in_group(const Acc* totals, unsigned count) {
    Acc result = Step::neutral();
#pragma unroll
    for (unsigned i = 0; i < kScanGroup - 1; ++i) {
      const Acc total = totals[i];
      if (i < count) result = Step::combine(result, total);
    }
    return result;
  }

  // For the last tile of a fibre, whose end may be within a chunk.
  __device__ void load_last(const T* in, int rest, int buffer) const {
#pragma unroll 1
    for (unsigned i = 0; i < kThreadChunks<T>; ++i) {
      ScanChunk<T> elements;
#pragma unroll
      for (int e = 0; e < kChunkElements<T>; ++e) {
        const int at = static_cast<int>((i * 32 + lane_) * kChunkElements<T>) + e;
        elements.values[e] = at < rest ? in[at] : convert<T>(Step::neutral());
      }
      wide_chunk(buffer, i) = elements;
    }
  }

  __device__ void write_last(T* out, int rest, int buffer) const {
#pragma unroll 1
    for (unsigned i = 0; i < kThreadChunks<T>; ++i) {
      const ScanChunk<T> results = wide_chunk(buffer, i);
#pragma unroll
      for (int e = 0; e < kChunkElements<T>; ++e) {
        const int at = static_cast<int>((i * 32 + lane_) * kChunkElements<T>) + e;
        if (at < rest) out[at] = results.values[e];
      }
    }
  }

  // The first of the warp's elements in a tile.
  __device__ int warp_first() const { return static_cast<int>(warp_ * 32 * kScanGroup); }
  __device__ ScanChunk<T>& own_chunk(int buffer, unsigned i) const {
    return memory_.tiles[buffer][warp_][own_place<T>(lane_, i)];
  }
  __device__ ScanChunk<T>& wide_chunk(int buffer, unsigned i) const {
    return memory_.tiles[buffer][warp_][wide_place<T>(lane_, i)];
  }

  const FibrePlan& plan_;
  const TileTotals& totals_;
  const ScanTasks& tasks_;
  Memory& memory_;
  const unsigned thread_ = threadIdx.x;
  const unsigned warp_ = thread_ / 32;
  const unsigned lane_ = thread_ % 32;
};

}  // namespace

}  // namespace gantry::kernels::cuda
