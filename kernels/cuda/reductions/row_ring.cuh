// Note [Rows on their way]
// A thread that reduces columns has one read of each row, and adds little to it. The compiler mixes
// reads and additions to save registers, so that few reads are under way. A ring in shared memory
// holds what is under way instead. Each thread fills and reads its own slots; threads do not wait
// for each other.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace gantry::kernels::cuda {

namespace {

// Threads of a block with a ring.
constexpr int kRingThreads = 256;
// Parts of a ring, which are filled and awaited as one.
constexpr int kRingGroups = 4;
// True if a copy to shared memory can have the size of a Vector.
template <class Vector>
constexpr bool kHasRing = sizeof(Vector) == 4 || sizeof(Vector) == 8 || sizeof(Vector) == 16;
// Rows of a thread that are under way.
template <class Vector>
constexpr int kRingRows = sizeof(Vector) == 16 ? 8 : 16;

template <class Vector>
__device__ void copy_async(Vector* to, const void* from) {
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (sizeof(Vector) == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from),
                 "n"(sizeof(Vector))
                 : "memory");
  }
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all copies but the last kRingGroups - 1 groups.
__device__ inline void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kRingGroups - 1) : "memory");
}

// Calls take(n % kRingRows, vector, n) for n = 0 … rows - 1 with the vectors at from + n * step.
// `slots` is the thread's first slot; the others follow, kRingThreads apart.
template <class Vector, class In, class Take>
__device__ void stream_rows(Vector* slots, const In* from, std::int64_t step, int rows,
                            const Take& take) {
  constexpr int kRows = kRingRows<Vector>;
  constexpr int kGroup = kRows / kRingGroups;
  const auto fetch = [&](int i) { copy_async(slots + i * kRingThreads, from + i * step); };
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (i < rows) fetch(i);
    if (i % kGroup == kGroup - 1) commit_copies();
  }
  from += kRows * step;
  int n = 0;
#pragma unroll 1
  for (; n + 2 * kRows <= rows; n += kRows) {
    __builtin_assume(n >= 0);
#pragma unroll
    for (int first = 0; first < kRows; first += kGroup) {
      await_copies();
#pragma unroll
      for (int i = first; i < first + kGroup; ++i) take(i, slots[i * kRingThreads], n + i);
#pragma unroll
      for (int i = first; i < first + kGroup; ++i) fetch(i);
      commit_copies();
    }
    from += kRows * step;
  }
#pragma unroll 1
  for (; n < rows; n += kRows) {
    __builtin_assume(n >= 0);
    const int left = rows - n;
#pragma unroll
    for (int first = 0; first < kRows; first += kGroup) {
      await_copies();
#pragma unroll
      for (int i = first; i < first + kGroup; ++i) {
        if (i < left) take(i, slots[i * kRingThreads], n + i);
      }
#pragma unroll
      for (int i = first; i < first + kGroup; ++i) {
        if (kRows + i < left) fetch(i);
      }
      commit_copies();
    }
    from += kRows * step;
  }
}

// As stream_rows(), with the rows of a turn, kRows of them, in registers.
template <class Vector, int kRows = kRingRows<Vector>, class In, class Take>
__device__ void load_rows(const In* from, std::int64_t step, int rows, const Take& take) {
  int n = 0;
#pragma unroll 1
  for (; n + kRows <= rows; n += kRows, from += kRows * step) {
    __builtin_assume(n >= 0);
    Vector batch[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) batch[i] = *reinterpret_cast<const Vector*>(from + i * step);
#pragma unroll
    for (int i = 0; i < kRows; ++i) take(i, batch[i], n + i);
  }
  Vector batch[kRows] = {};  // otherwise the compiler keeps the values of the last call
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (n + i < rows) batch[i] = *reinterpret_cast<const Vector*>(from + i * step);
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (n + i < rows) take(i, batch[i], n + i);
  }
}

}  // namespace

}  // namespace gantry::kernels::cuda
