// The value before a tile of a scan, from the totals that other blocks publish.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/fibre_plan.hpp"
#include "kernels/impl/scan.inl"

namespace gantry::kernels::cuda {

namespace {

// The levels of totals: enough for a grid's 2^31 tiles.
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

// Waits for a total.
template <class Acc>
__device__ Acc await(const PublishedTotal* from) {
  const volatile PublishedTotal* total = from;
  unsigned long long low = 0;
  unsigned long long high = 0;
  do {
    low = total->low;
    high = total->high;
  } while ((low >> 32) == 0 || (high >> 32) == 0);
  const unsigned long long bits = (low & 0xffffffffull) | (high << 32);
  Acc value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// The scratch memory of a launch, all zero at its start.
struct TileTotals {
  PublishedTotal* totals = nullptr;  // of one fibre after the other, of one level after the other
  std::uint32_t* next_tile = nullptr;
  std::int64_t per_fibre = 0;
};

// Published totals of a fibre: complete groups of each level.
inline std::int64_t totals_per_fibre(std::int64_t tiles) {
  std::int64_t result = 0;
  for (; tiles > 0; tiles /= kScanGroup) result += tiles;
  return result;
}

// The running value, in each thread of half a warp, of those values of the half's threads that are
// not neutral().
template <class Step, class Acc>
__device__ Acc running_value_of_half(Acc value) {
  Acc result = Step::neutral();
#pragma unroll
  for (int i = 0; i < kScanGroup - 1; ++i) {
    result = Step::combine(result, __shfl_sync(0xffffffffu, value, i, kScanGroup));
  }
  return result;
}

// The value before tile `tile` of a fibre, in every thread of a warp. Publishes `total`, the tile's
// own, and the totals of the groups that it completes. Every thread of the warp calls, once, with
// the same arguments. `running` is shared memory of the warp: the running value of each level.
template <class Step, class Acc>
__device__ Acc value_before_tile(const TileTotals& shared_totals, std::int64_t fibre,
                                 std::int64_t tile, std::int64_t tiles, Acc total, Acc* running) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int half = lane / kScanGroup;
  PublishedTotal* units = shared_totals.totals + fibre * shared_totals.per_fibre;
  std::int64_t unit = tile;
  if (lane == 0) publish(units + tile, total);
  bool ends = true;  // the tile ends a group of all levels below
  int levels = 0;
  while (unit > 0) {
    // Half a warp waits for one level. Two levels at a time, once the tile ends no group.
    ends = ends && unit % kScanGroup == kScanGroup - 1;
    const bool is_idle = ends && half == 1;
    const std::int64_t own_unit = half == 0 ? unit : unit / kScanGroup;
    const int own_lane = lane % kScanGroup;
    const int before = static_cast<int>(own_unit % kScanGroup);
    Acc value = Step::neutral();
    if (!is_idle && own_lane < before) {
      const PublishedTotal* own = half == 0 ? units : units + tiles;
      value = await<Acc>(own + (own_unit - before) + own_lane);
    }
    __syncwarp();
    value = running_value_of_half<Step>(value);
    if (own_lane == 0 && !is_idle) running[levels + half] = value;
    const int done = ends ? 1 : 2;
    for (int i = 0; i < done; ++i) {
      units += tiles;
      tiles /= kScanGroup;
      unit /= kScanGroup;
    }
    if (ends) {
      total = Step::combine(value, total);
      if (lane == 0) publish(units + unit, total);
    }
    levels += done;
  }
  __syncwarp();
  Acc result = Step::neutral();
  for (int level = levels - 1; level >= 0; --level) result = Step::combine(result, running[level]);
  __syncwarp();  // the next call may overwrite
  return result;
}

}  // namespace

}  // namespace gantry::kernels::cuda
