// Running extrema of short or many fibres on the GPU: a warp has a row, or a thread a column.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/impl/cumulative.inl"

namespace gantry::kernels::cuda {

namespace {

// Elements of a thread that are in flight.
constexpr int kCumulativeBatch = 8;

// The best element so far, of which `key` is the largest and `position` the last one.
template <class U>
struct RunningBest {
  U key = 0;
  U bits = 0;
  std::int64_t position = 0;
};

// A warp per fibre, in steps of 32 neighbouring elements, kSteps at a time. An element is a record
// if its key is the largest so far. The result of each element is the last record up to it.
template <class U, int kSteps>
__global__ void __launch_bounds__(kThreads, sizeof(U) == 8 ? 2 : 4)
    cumulative_rows_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order) {
  // Shuffles have words of at least 32 bits.
  using Word = std::conditional_t<sizeof(U) == 8, std::uint64_t, std::uint32_t>;
  constexpr unsigned kAll = 0xffffffffu;
  constexpr int kWarps = kThreads / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned up_to_lane = kAll >> (31 - lane);
  const std::int64_t length = plan.fibres.length;
  const std::int64_t stride = plan.fibres.in.stride;
  // The condition is the same in a warp, so its shuffles have all threads.
  for (std::int64_t fibre = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       fibre < plan.fibres.count; fibre += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    const U* in = sort_input<U>(plan, fibre);
    const SortOutput<U> out = sort_output<U>(plan, fibre);
    RunningBest<Word> best;
    for (std::int64_t first = 0; first < length; first += kSteps * 32) {
      U batch[kSteps];
      Word running[kSteps];
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const std::int64_t k = first + i * 32 + lane;
        batch[i] = k < length ? in[k * stride] : U(0);
      }
      // An absent element has the smallest key. It comes after all others, so it changes none.
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        running[i] = first + i * 32 + lane < length ? order.key(batch[i]) : U(0);
      }
      Word keys[kSteps];
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        keys[i] = running[i];
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
          // A lane without one so far before it gets its own value, which changes nothing.
          const Word other = __shfl_up_sync(kAll, running[i], distance);
          running[i] = other > running[i] ? other : running[i];
        }
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const std::int64_t begin = first + i * 32;
        if (begin >= length) break;
        const Word largest = running[i] > best.key ? running[i] : best.key;
        const unsigned records = __ballot_sync(kAll, keys[i] == largest && begin + lane < length);
        const unsigned before = records & up_to_lane;
        const int record = before == 0 ? 0 : 31 - __clz(static_cast<int>(before));
        const auto bits = __shfl_sync(kAll, static_cast<Word>(batch[i]), record);
        if (begin + lane < length) {
          out.write(begin + lane, order.stored(static_cast<U>(before == 0 ? best.bits : bits)),
                    before == 0 ? best.position : begin + record);
        }
        if (records != 0) {
          const int last = 31 - __clz(static_cast<int>(records));
          best.bits = __shfl_sync(kAll, static_cast<Word>(batch[i]), last);
          best.position = begin + last;
          best.key = __shfl_sync(kAll, largest, last);
        }
      }
    }
  }
}

// A thread per fibre.
template <class U>
__global__ void __launch_bounds__(kThreads)
    cumulative_fibres_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order) {
  const std::int64_t length = plan.fibres.length;
  const std::int64_t stride = plan.fibres.in.stride;
  for (std::int64_t fibre = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       fibre < plan.fibres.count; fibre += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const U* in = sort_input<U>(plan, fibre);
    const SortOutput<U> out = sort_output<U>(plan, fibre);
    RunningBest<U> best;
    for (std::int64_t first = 0; first < length; first += kCumulativeBatch) {
      U batch[kCumulativeBatch];
#pragma unroll
      for (int i = 0; i < kCumulativeBatch; ++i) {
        if (first + i < length) batch[i] = in[(first + i) * stride];
      }
#pragma unroll
      for (int i = 0; i < kCumulativeBatch; ++i) {
        if (first + i >= length) break;
        const U key = order.key(batch[i]);
        if (key >= best.key) best = {key, batch[i], first + i};
        out.write(first + i, order.stored(best.bits), best.position);
      }
    }
  }
}

}  // namespace

}  // namespace gantry::kernels::cuda
