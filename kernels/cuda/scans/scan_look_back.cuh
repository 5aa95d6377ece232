// The look-back of scans on the GPU: how a tile learns the value before it.
#pragma once

#include "kernels/impl/scan.inl"
#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

// The levels of totals, a warp for each: enough for a grid's 2^31 tiles.
constexpr int kTileLevels = 8;
static_assert(kTileLevels * kScanGroupBits >= 31);
// Note [Look-back by levels]
// A tile publishes its total, then needs the running value before it. At each level that is the
// running value of the totals of the preceding units of its group. (A group has 16 units; a unit of
// the lowest level is a tile.) The last unit of a group publishes the group's total as a unit of
// the next level. It does so before it waits for anything of that level. Otherwise each group would
// wait for the group before it, and a fibre would be one chain of waits. A tile thus waits for at
// most 15 totals per level, and the chain of waits is as long as the number of levels. Tiles take
// numbers in the order in which they start, so a tile waits only for tiles that are running or
// complete.
// Source: the decoupled look-back of Merrill and Garland (2016), with levels.

// A published total: two halves, each with a flag in one 8-byte word. A reader that sees both flags
// has the whole value, in whatever order the words arrive.
struct alignas(16) PublishedTotal {
  unsigned long long low;
  unsigned long long high;
};

template <class Acc>
__device__ void publish(PublishedTotal* to, Acc value) {
  unsigned long long bits = 0;
  memcpy(&bits, &value, sizeof value);
  volatile PublishedTotal* total = to;
  total->low = (bits & 0xffffffffull) | (1ull << 32);
  total->high = (bits >> 32) | (1ull << 32);
}

// A total as read at some time, published or not.
struct PolledTotal {
  unsigned long long low = 0;
  unsigned long long high = 0;

  __device__ void poll(const PublishedTotal* from) {
    const volatile PublishedTotal* total = from;
    low = total->low;
    high = total->high;
  }
  __device__ bool is_complete() const { return (low >> 32) != 0 && (high >> 32) != 0; }
  template <class Acc>
  __device__ Acc value() const {
    const unsigned long long bits = (low & 0xffffffffull) | (high << 32);
    Acc result;
    memcpy(&result, &bits, sizeof result);
    return result;
  }
};

// Waits for a total.
template <class Acc>
__device__ Acc await(const PublishedTotal* from) {
  PolledTotal total;
  do {
    total.poll(from);
  } while (!total.is_complete());
  return total.template value<Acc>();
}

// The scratch memory of a launch, zero at its start but for `lasts`.
struct TileTotals {
  PublishedTotal* totals = nullptr;  // of one fibre after the other, of one level after the other
  std::uint32_t* next_tile = nullptr;
  std::int64_t per_fibre = 0;
  // Note [Restarted scans]: of each fibre the number of tiles from the first that fails on, and of
  // each tile the last result.
  std::uint32_t* restarts = nullptr;
  double* lasts = nullptr;

  // Notes that a tile fails. Any thread calls.
  __device__ void restart_at(std::int64_t fibre, std::int64_t tile, std::int64_t tiles) const {
    atomicMax(restarts + fibre, static_cast<std::uint32_t>(tiles - tile));
  }

  // The totals of one fibre and the units of one level of it.
  __device__ PublishedTotal* of_level(std::int64_t fibre, std::int64_t tiles, int level) const {
    PublishedTotal* result = totals + fibre * per_fibre;
    for (; level > 0; --level) {
      result += tiles;
      tiles /= kScanGroup;
    }
    return result;
  }
};

// Published totals of a fibre: complete groups of each level.
inline std::int64_t totals_per_fibre(std::int64_t tiles) {
  std::int64_t result = 0;
  for (; tiles > 0; tiles /= kScanGroup) result += tiles;
  return result;
}

// The running value of `count` values left to right.
template <class Step, class Acc>
__device__ Acc running_value(const Acc* values, int count) {
  Acc result = Step::neutral();
#pragma unroll 5
  for (int i = 0; i < count; ++i) result = Step::combine(result, values[i]);
  return result;
}

// The value before tile `tile` of a fibre, in every thread of a block. Publishes `total`, the
// tile's own, and the totals of the groups that it completes. Every thread calls, once.
template <class Step, class Acc>
__device__ Acc value_before_tile(const TileTotals& shared_totals, std::int64_t fibre,
                                 std::int64_t tile, std::int64_t tiles, Acc total) {
  __shared__ Acc siblings[kTileLevels][kScanGroup];
  __shared__ Acc running[kTileLevels];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) publish(shared_totals.of_level(fibre, tiles, 0) + tile, total);
  // Waits for the units of a level before the tile, and returns their running value. Every thread
  // of a warp calls.
  const auto value_at = [&](int level) {
    const std::int64_t unit = tile >> (level * kScanGroupBits);
    const int before = static_cast<int>(unit % kScanGroup);
    if (lane < before) {
      siblings[level][lane] =
          await<Acc>(shared_totals.of_level(fibre, tiles, level) + (unit - before) + lane);
    }
    __syncwarp();
    return running_value<Step>(siblings[level], before);
  };
  int ended = 0;  // levels of which the tile ends a group
  for (std::int64_t unit = tile; unit % kScanGroup == kScanGroup - 1; unit /= kScanGroup) ++ended;
  if (warp == 0) {
    for (int level = 0; level < ended; ++level) {
      const Acc before = value_at(level);
      total = Step::combine(before, total);
      if (lane == 0) {
        running[level] = before;
        publish(shared_totals.of_level(fibre, tiles, level + 1) +
                    (tile >> ((level + 1) * kScanGroupBits)),
                total);
      }
    }
  }
  if (warp >= ended && (tile >> (warp * kScanGroupBits)) > 0) {
    const Acc before = value_at(warp);
    if (lane == 0) running[warp] = before;
  }
  __syncthreads();
  int levels = 0;
  while (levels < kTileLevels && (tile >> (levels * kScanGroupBits)) > 0) ++levels;
  Acc result = Step::neutral();
  for (int level = levels - 1; level >= 0; --level) result = Step::combine(result, running[level]);
  return result;
}

}  // namespace

}  // namespace gantry::kernels::cuda
