// The second rule of Note [Restarted scans] on the GPU: rows that are scanned left to right.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scans/scan_look_back.cuh"

namespace gantry::kernels::cuda {

namespace {

constexpr int kRestartThreads = static_cast<int>(kScanTile) / kScanGroup;

// Ends a block that has scanned fibres of one tile, `threads_per_fibre` threads each. A thread's
// group `fails`, or the thread has none. Every thread calls.
template <class In, ScanOp kOp>
__device__ void restart_short_rows(const FibrePlan& plan, std::int64_t first_fibre,
                                   int threads_per_fibre, bool fails) {
  using Step = ScanStep<ScanAccumulator<In>, kOp>;
  __shared__ bool failed[kRestartThreads];
  const int thread = static_cast<int>(threadIdx.x);
  failed[thread] = fails;
  if (__syncthreads_or(fails) == 0 || thread % threads_per_fibre != 0) return;
  bool any = false;
  for (int i = 0; i < threads_per_fibre; ++i) any |= failed[thread + i];
  if (!any) return;
  const std::int64_t fibre = first_fibre + thread / threads_per_fibre;
  scan_left_to_right<Step>(static_cast<ScanOut<In>*>(plan.out.data) + plan.out.outer.offset(fibre),
                           plan.out.stride,
                           static_cast<const In*>(plan.in.data) + plan.in.outer.offset(fibre),
                           plan.in.stride, plan.length, Step::neutral());
}

// The part of an element that is left in a settled running value: the sign of a factor, and
// everything of an element that is not finite. So no running value of such parts overflows.
template <class Step, ScanOp kOp, class Acc>
__device__ Acc part_of(Acc element) {
  if (!is_finite(element)) return element;
  if constexpr (kOp == ScanOp::product) {
    return element == 0 ? element : element < 0 ? Acc(-1) : Acc(1);
  }
  return Step::neutral();
}

// True of a running value on which the magnitudes of finite elements have no influence.
template <ScanOp kOp, class Acc>
__device__ bool is_settled(Acc running) {
  return !is_finite(running) || (kOp == ScanOp::product && running == 0);
}

// A block scans a fibre from the tile where it restarts. One thread does until the running value is
// settled, as the order is the definition. All threads compute the results after it. A fibre
// without such a tile ends its block at once.
template <class In, ScanOp kOp>
__global__ void __launch_bounds__(kRestartThreads)
    restart_rows(const __grid_constant__ FibrePlan plan, const __grid_constant__ TileTotals totals,
                 std::int64_t tiles) {
  using Step = ScanStep<ScanAccumulator<In>, kOp>;
  using Acc = typename Step::Acc;
  __shared__ In elements[kScanTile];
  __shared__ Acc thread_totals[kRestartThreads];
  __shared__ Acc group_totals[kScanGroup];
  __shared__ Acc carried;
  __shared__ int walked;
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t fibre = blockIdx.x; fibre < plan.count; fibre += gridDim.x) {
    // The threads look at many fibres at a time.
    const std::int64_t round = fibre / gridDim.x;
    if (round % kRestartThreads == 0) {
      const std::int64_t other = fibre + static_cast<std::int64_t>(thread) * gridDim.x;
      if (__syncthreads_or(other < plan.count && totals.restarts[other] != 0) == 0) {
        fibre += static_cast<std::int64_t>(kRestartThreads - 1) * gridDim.x;
        continue;
      }
    }
    const std::uint32_t rest = totals.restarts[fibre];
    if (rest == 0) continue;
    std::int64_t tile = tiles - rest;
    if (thread == 0) {
      carried =
          tile == 0 ? Step::neutral() : static_cast<Acc>(totals.lasts[fibre * tiles + tile - 1]);
    }
    const In* in = static_cast<const In*>(plan.in.data) + plan.in.outer.offset(fibre);
    In* out = static_cast<In*>(plan.out.data) + plan.out.outer.offset(fibre);
    for (; tile < tiles; ++tile) {
      const std::int64_t first = tile * kScanTile;
      const std::int64_t left = plan.length - first;
      const int count = static_cast<int>(left < kScanTile ? left : kScanTile);
      for (int i = thread; i < count; i += kRestartThreads) {
        elements[i] = in[(first + i) * plan.in.stride];
      }
      __syncthreads();
      if (thread == 0) {
        Acc running = carried;
        int i = 0;
        for (; i < count && !is_settled<kOp>(running); ++i) {
          running = Step::combine(running, static_cast<Acc>(elements[i]));
          elements[i] = from_accumulator<In>(running);
        }
        carried = running;
        walked = i;
      }
      __syncthreads();
      if (walked < count) {
        const int own_first = thread * kScanGroup;
        const auto for_each_own = [&](const auto& f) {
          for (int i = own_first; i < own_first + kScanGroup; ++i) {
            if (i >= walked && i < count) f(elements[i]);
          }
        };
        Acc total = Step::neutral();
        for_each_own([&](const In& element) {
          total = Step::combine(total, part_of<Step, kOp>(static_cast<Acc>(element)));
        });
        thread_totals[thread] = total;
        __syncthreads();
        const int in_group = thread % kScanGroup;
        const int group = thread / kScanGroup;
        const Acc in_group_before =
            running_value<Step>(thread_totals + (thread - in_group), in_group);
        if (in_group == kScanGroup - 1) {
          group_totals[group] = Step::combine(in_group_before, total);
        }
        __syncthreads();
        Acc running = Step::combine(carried, running_value<Step>(group_totals, group));
        running = Step::combine(running, in_group_before);
        for_each_own([&](In& element) {
          running = Step::combine(running, part_of<Step, kOp>(static_cast<Acc>(element)));
          element = from_accumulator<In>(running);
        });
        __syncthreads();  // every thread has read the value that was carried
        if (thread == kRestartThreads - 1) carried = running;
      }
      __syncthreads();
      for (int i = thread; i < count; i += kRestartThreads) {
        out[(first + i) * plan.out.stride] = elements[i];
      }
      __syncthreads();
    }
  }
}

// Follows a scan of rows of several tiles on the same stream.
template <class In, ScanOp kOp>
void launch_restart(void* stream, const FibrePlan& plan, const TileTotals& totals,
                    std::int64_t tiles) {
  if constexpr (kRestarts<In, kOp>) {
    constexpr std::int64_t kMostBlocks = 1024;  // few, as most have nothing to do
    const std::int64_t blocks = plan.count < kMostBlocks ? plan.count : kMostBlocks;
    launch("restart_rows", stream, static_cast<unsigned>(blocks), kRestartThreads, 0,
           restart_rows<In, kOp>, plan, totals, tiles);
  }
}

}  // namespace

}  // namespace gantry::kernels::cuda
