// Short rows of a scan that follow each other in memory: a block accesses them side by side.
#pragma once

#include "kernels/impl/scan.inl"
#include "kernels/input.hpp"
#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

// Threads of a block that scans rows: each has one group of elements, and 16 of them one group of
// totals.
constexpr int kRowThreads = static_cast<int>(kScanTile) / kScanGroup;
// Elements of a wide access, and wide accesses of a thread to a whole tile.
constexpr int kVector = 4;
constexpr int kVectors = kScanGroup / kVector;

// The type of an element in shared memory: as wide as the result.
template <class In>
using Staged = std::conditional_t<is_floating_point(dtype_of<In>), In, std::int64_t>;

// The position of element i of a tile in shared memory. The space between groups keeps the threads,
// each with its group, on different banks.
template <class S>
__device__ constexpr int staged_at(int i) {
  return i + i / kScanGroup * (sizeof(S) < 4 ? 4 / static_cast<int>(sizeof(S)) : 1);
}

// The rows of a block, which has whole groups of threads for each.
struct DenseRows {
  bool is_dense_in = false;   // each row begins where the preceding one ends
  bool is_dense_out = false;  // as is_dense_in
  int length = 0;
  int threads = 0;            // of a row
  std::uint32_t inverse = 0;  // 2^32 / length, rounded up

  // Calls f(v, position in shared memory) for elements first … first + kVector - 1 of the block.
  template <class S, class F>
  __device__ void for_each_place(int first, const F& f) const {
    const int row_places = threads * kScanGroup;
    if (length == row_places) {  // the elements are of one group
      const int place = staged_at<S>(first);
#pragma unroll
      for (int v = 0; v < kVector; ++v) f(v, place + v);
      return;
    }
    int row = static_cast<int>(__umulhi(static_cast<std::uint32_t>(first), inverse));
    int position = first - row * length;
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      f(v, staged_at<S>(row * row_places + position));
      if (++position == length) {
        position = 0;
        ++row;
      }
    }
  }

  // Loads `count` elements.
  template <class T, class S>
  __device__ void load(const T* in, int count, S* staged) const {
    using Pack = StoredPack<T, kVector>;
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(in) % alignof(Pack) == 0;
    Pack batch[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int first = (i * kRowThreads + static_cast<int>(threadIdx.x)) * kVector;
      if (is_aligned && first + kVector <= count) {
        batch[i] = *reinterpret_cast<const Pack*>(in + first);
      } else {
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          if (first + v < count) batch[i].values[v] = in[first + v];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int first = (i * kRowThreads + static_cast<int>(threadIdx.x)) * kVector;
      if (first < count) {
        for_each_place<S>(first, [&](int v, int place) {
          if (first + v < count) staged[place] = static_cast<S>(batch[i].values[v]);
        });
      }
    }
  }

  // Stores `count` elements.
  template <class T, class S>
  __device__ void store(T* out, int count, const S* staged) const {
    using Pack = StoredPack<T, kVector>;
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(out) % alignof(Pack) == 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int first = (i * kRowThreads + static_cast<int>(threadIdx.x)) * kVector;
      if (first >= count) break;
      Pack results;
      for_each_place<S>(first, [&](int v, int place) {
        if (first + v < count) results.values[v] = staged[place];
      });
      if (is_aligned && first + kVector <= count) {
        *reinterpret_cast<Pack*>(out + first) = results;
      } else {
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          if (first + v < count) out[first + v] = results.values[v];
        }
      }
    }
  }
};

// True if each row begins where the preceding one ends. Precondition: dims are merged.
inline bool are_rows_dense(const Fibres& rows, std::int64_t length) {
  return length > 1 && rows.stride == 1 && rows.outer.ndim == 1 && rows.outer.strides[0] == length;
}

// Rows of at most half a tile, each with `threads` threads.
inline DenseRows make_dense_rows(const FibrePlan& plan, int threads) {
  DenseRows rows;
  rows.is_dense_in = are_rows_dense(plan.in, plan.length);
  rows.is_dense_out = are_rows_dense(plan.out, plan.length);
  rows.length = static_cast<int>(plan.length);
  rows.threads = threads;
  if (rows.length > 1) {
    const auto divisor = static_cast<std::uint64_t>(rows.length);
    rows.inverse = static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + divisor - 1) / divisor);
  }
  return rows;
}

}  // namespace

}  // namespace gantry::kernels::cuda
