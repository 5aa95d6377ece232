// A stable radix sort in the shared memory of a block.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gantry/core/macros.hpp>

namespace gantry::kernels::cuda {

// Note [Radix sort in a block]
// A pass sorts by a digit of 4 bits. Each thread has kItems neighbouring elements. It counts their
// digits in 16 counters of its own, two to a word. An exclusive sum over all counters, digit after
// digit and thread after thread in each, gives every element its rank. All elements then move to
// their ranks. The number of threads is any multiple of 32, so few places of a block are empty.
// kItems is odd, and so is the number of words that a thread sums: neighbouring threads read
// different banks.
//
// Places that no element fills have keys of ones alone. A stable sort keeps them at the end.

constexpr int kDigitBits = 4;
constexpr int kDigits = 1 << kDigitBits;
// Counters of two digits share a word: digit d and d + kCounterWords.
constexpr int kCounterWords = kDigits / 2;
// Words of counters for each thread. One is not used, which makes them odd.
constexpr int kSummedWords = kCounterWords + 1;

// Shared memory of the counters, in words.
GANTRY_HD constexpr int counter_words(int threads) { return kSummedWords * threads + 32; }

// The sum of `value` over the lanes up to the calling one. Every lane calls.
__device__ inline std::uint32_t sum_of_lanes(std::uint32_t value, int lane) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint32_t before =
        __shfl_up_sync(0xffffffffu, value, static_cast<unsigned>(distance));
    if (lane >= distance) value += before;
  }
  return value;
}

// Replaces the counts of a block by their exclusive sums. `counters` ends with the sums of warps.
__device__ inline void sum_counters(std::uint32_t* counters) {
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  std::uint32_t* const warp_sums = counters + kSummedWords * threads;
  std::uint32_t* const own = counters + kSummedWords * thread;
  std::uint32_t total = 0;
#pragma unroll
  for (int w = 0; w < kSummedWords; ++w) total += own[w];
  const std::uint32_t upto = sum_of_lanes(total, lane);
  if (lane == 31) warp_sums[warp] = upto;
  __syncthreads();
  const std::uint32_t warps_upto = sum_of_lanes(lane < threads / 32 ? warp_sums[lane] : 0, lane);
  const std::uint32_t before_warp = __shfl_sync(0xffffffffu, warps_upto, warp - 1);
  const std::uint32_t all = __shfl_sync(0xffffffffu, warps_upto, 31);
  // The digits of the higher halves come after all digits of the lower ones.
  std::uint32_t sum = (warp == 0 ? 0 : before_warp) + (upto - total) + (all << 16);
#pragma unroll
  for (int w = 0; w < kSummedWords; ++w) {
    const std::uint32_t count = own[w];  // read again, as registers are few here
    own[w] = sum;
    sum += count;
  }
}

// The ranks of the calling thread's keys by the digit at bit `shift`. Every thread of the block
// calls. Calls load() late. When it returns, all threads have made all accesses before it, and
// those of load().
template <int kItems, class Key, class Load>
__device__ void rank_digits(const Key (&keys)[kItems], int shift, std::uint32_t* counters,
                            std::uint32_t (&ranks)[kItems], const Load& load) {
  const auto threads = blockDim.x;
#pragma unroll
  for (int w = 0; w < kSummedWords; ++w) counters[w * threads + threadIdx.x] = 0;
  __syncwarp();  // the halves are accessed as another type
  auto* const own = reinterpret_cast<std::uint16_t*>(counters + threadIdx.x);
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const auto digit = static_cast<std::uint32_t>(keys[i] >> shift);
    const std::uint32_t at = digit % kCounterWords * (2 * threads) + digit / kCounterWords % 2;
    const std::uint32_t before = own[at];
    own[at] = static_cast<std::uint16_t>(before + 1);
    ranks[i] = at | before << 16;
  }
  __syncthreads();
  sum_counters(counters);
  load();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kItems; ++i) ranks[i] = own[ranks[i] & 0xffff] + (ranks[i] >> 16);
}

// Sorts the kItems * blockDim.x words by their bits begin … end - 1. Every thread of the block
// calls. All words are visible to all threads before and after.
template <int kItems>
__device__ void sort_words(std::uint32_t* words, std::uint32_t* counters, int begin, int end) {
  std::uint32_t* const own = words + kItems * threadIdx.x;
  for (int shift = begin; shift < end; shift += kDigitBits) {
    std::uint32_t moved[kItems];
    std::uint32_t ranks[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) moved[i] = own[i];
    rank_digits(moved, shift, counters, ranks, [] {});
#pragma unroll
    for (int i = 0; i < kItems; ++i) words[ranks[i]] = moved[i];
    __syncthreads();
  }
}

// Sorts the kItems * blockDim.x keys by their lower `bits` bits, and the places with them, as
// sort_words() does.
template <int kItems, class Key>
__device__ void sort_keys(Key* keys, std::uint16_t* places, std::uint32_t* counters, int bits) {
  Key* const own_keys = keys + kItems * threadIdx.x;
  std::uint16_t* const own_places = places + kItems * threadIdx.x;
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    Key moved[kItems];
    std::uint16_t moved_places[kItems];
    std::uint32_t ranks[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) moved[i] = own_keys[i];
    rank_digits(moved, shift, counters, ranks, [&] {
#pragma unroll
      for (int i = 0; i < kItems; ++i) moved_places[i] = own_places[i];
    });
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      keys[ranks[i]] = moved[i];
      places[ranks[i]] = moved_places[i];
    }
    __syncthreads();
  }
}

}  // namespace gantry::kernels::cuda
