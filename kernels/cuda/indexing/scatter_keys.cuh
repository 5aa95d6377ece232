// A part that scatter and index_scatter share: the keys of their writes. Writes of one key go to
// one destination.
#pragma once

#include "kernels/cuda/elementwise/offset_calculator.cuh"
#include "kernels/cuda/indexing/index_fault.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordering/sort_positions.hpp"
#include "kernels/impl/scatter.inl"

namespace gantry::kernels::cuda {

namespace {

// The writes of a plan in their order: write i has the index at offset [2] of position i. Its key
// is offset [1] plus the index's position times `stride`, less than `end`.
struct ScatterKeys {
  IndexingPlan plan;
  OffsetCalculator<3> calculator;
  std::int64_t stride;
  std::int64_t end;
  std::uint32_t count;

  // Returns -1 for an index out of range.
  __device__ std::int64_t key_of(std::int64_t position, const std::int64_t (&offsets)[3]) const {
    return position < 0 ? -1 : offsets[1] + position * stride;
  }
};

// Indices of each thread, all in flight.
constexpr int kKeysOwn = 4;

inline unsigned key_blocks(std::int64_t count) {
  return blocks_for((count + kKeysOwn - 1) / kKeysOwn);
}

// Calls f(i, key, offsets) for every write of the calling thread. Index faults are reported.
template <class F>
__device__ void for_each_key(const ScatterKeys& keys, const F& f) {
  constexpr std::int64_t kTile = kThreads * kKeysOwn;
  for (std::int64_t first = blockIdx.x * kTile + threadIdx.x; first < keys.count;
       first += gridDim.x * kTile) {
    std::int64_t offsets[kKeysOwn][3];
    std::int64_t indices[kKeysOwn];
#pragma unroll
    for (int k = 0; k < kKeysOwn; ++k) {
      const std::int64_t i = first + k * kThreads;
      if (i >= keys.count) break;
      keys.calculator.offsets(static_cast<std::uint32_t>(i), offsets[k]);
      indices[k] = load_index(keys.plan, offsets[k][2]);
    }
#pragma unroll
    for (int k = 0; k < kKeysOwn; ++k) {
      const std::int64_t i = first + k * kThreads;
      if (i >= keys.count) break;
      f(i, keys.key_of(checked_position(keys.plan, indices[k]), offsets[k]), offsets[k]);
    }
  }
}

// The data that moves with the keys.
enum class SortedWords : std::uint8_t {
  positions,
  halves,  // the written values, of 2 bytes
  ready,   // words that the caller has
};

// Writes the key and the word of every write; keys.end marks an index out of range.
template <class Key>
__global__ void __launch_bounds__(kThreads)
    sort_keys_kernel(const __grid_constant__ ScatterKeys keys, Key* out, std::uint32_t* words,
                     SortedWords kind) {
  for_each_key(keys, [&](std::int64_t i, std::int64_t key, const std::int64_t(&offsets)[3]) {
    out[i] = static_cast<Key>(key < 0 ? keys.end : key);
    if (kind == SortedWords::positions) words[i] = static_cast<std::uint32_t>(i);
    if (kind == SortedWords::halves)
      words[i] = static_cast<const std::uint16_t*>(keys.plan.direct)[offsets[0]];
  });
}

// Sorts the writes by key. `words`: the words that are ready.
inline void sort_writes(void* stream, const ScatterKeys& keys, const PositionSort& sort,
                        SortedWords kind = SortedWords::positions,
                        const std::uint32_t* words = nullptr) {
  sort.visit([&](auto* unsorted, std::uint32_t* own_words, auto*, auto*) {
    launch("scatter_keys", stream, key_blocks(keys.count), kThreads, 0,
           sort_keys_kernel<std::remove_pointer_t<decltype(unsorted)>>, keys, unsorted, own_words,
           kind);
  });
  sort.run(keys.plan.op, stream, kind == SortedWords::ready ? words : nullptr);
}

// Note [Last write]
// Where writes replace, the last write to a destination wins. In a first launch, an atomic maximum
// puts each write's position plus one into the slot of its destination. A maximum does not depend
// on the order. The second launch makes only the writes whose position is in their slot.

__global__ void __launch_bounds__(kThreads)
    claim_slots_kernel(const __grid_constant__ ScatterKeys keys, std::uint32_t* slots) {
  for_each_key(keys, [&](std::int64_t i, std::int64_t key, const auto&) {
    if (key >= 0) atomicMax(slots + key, static_cast<std::uint32_t>(i) + 1);
  });
}

// True if the slots are small enough to be set to zero.
inline bool has_slots(std::int64_t count, std::int64_t end) { return end <= 8 * count + (1 << 20); }

inline std::size_t slot_bytes(std::int64_t end) {
  return static_cast<std::size_t>(end) * sizeof(std::uint32_t);
}

inline void claim_slots(void* stream, const ScatterKeys& keys, std::uint32_t* slots) {
  const cudaError_t status =
      cudaMemsetAsync(slots, 0, slot_bytes(keys.end), static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw_launch_error(keys.plan.op, stream, status);
  }
  launch("scatter_slots", stream, key_blocks(keys.count), kThreads, 0, claim_slots_kernel, keys,
         slots);
}

// Sums of integers do not depend on the order: atomic additions make them.
inline bool is_atomic(ScatterMode mode, DType dtype) {
  return mode == ScatterMode::add && (dtype == DType::i32 || dtype == DType::i64);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_atomic_kernel(const __grid_constant__ ScatterKeys keys) {
  using Word = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
  for_each_key(keys, [&](std::int64_t, std::int64_t key, const std::int64_t(&offsets)[3]) {
    if (key < 0) return;
    const T value = static_cast<const T*>(keys.plan.direct)[offsets[0]];
    atomicAdd(reinterpret_cast<Word*>(static_cast<T*>(keys.plan.indexed) + key),
              static_cast<Word>(value));
  });
}

// Sums of i32 and i64, at every position of the plan.
inline void scatter_atomic(void* stream, const IndexingPlan& plan) {
  const std::int64_t begin[3] = {};
  for_each_piece(
      plan.positions,
      [&](const StridedPlan<3>& piece, const std::int64_t(&offsets)[3]) {
        const ScatterKeys keys{plan_from(plan, offsets), OffsetCalculator<3>(piece),
                               plan.index_stride, plan.indexed_extent,
                               static_cast<std::uint32_t>(piece.numel)};
        launch("scatter_atomic", stream, key_blocks(piece.numel), kThreads, 0,
               plan.element_bytes == 8 ? scatter_atomic_kernel<std::int64_t>
                                       : scatter_atomic_kernel<std::int32_t>,
               keys);
      },
      begin);
}

}  // namespace

}  // namespace gantry::kernels::cuda
