// The slots of a sorting network, and the network: Note [Sorting networks in warps].
#pragma once

#include <cstdint>

#include "kernels/ordering/ordered_key.hpp"

namespace gantry::kernels::cuda {

// A key and its place. Comparing two slots compares keys, then places.
template <class U>
struct SortSlot {
  using Word = std::conditional_t<sizeof(U) == 4, std::uint64_t, std::uint32_t>;
  static constexpr int kPlaceBits = sizeof(Word) * 4;

  Word word;  // the key in its higher half

  __device__ static SortSlot make(U key, std::uint32_t place) {
    return {static_cast<Word>(static_cast<Word>(key) << kPlaceBits | place)};
  }
  __device__ U key() const { return static_cast<U>(word >> kPlaceBits); }
  __device__ std::uint32_t place() const {
    return static_cast<std::uint32_t>(word) &
           static_cast<std::uint32_t>(Word(~Word(0)) >> kPlaceBits);
  }
  __device__ bool precedes(const SortSlot& other) const { return word < other.word; }
  __device__ SortSlot from_lane(int mask) const {
    return {__shfl_xor_sync(0xffffffffu, word, mask)};
  }
};

template <>
struct SortSlot<std::uint64_t> {
  std::uint64_t own_key;
  std::uint32_t own_place;

  __device__ static SortSlot make(std::uint64_t key, std::uint32_t place) { return {key, place}; }
  __device__ std::uint64_t key() const { return own_key; }
  __device__ std::uint32_t place() const { return own_place; }
  __device__ bool precedes(const SortSlot& other) const {
    // Without a branch, in which lanes would part.
    return (own_key < other.own_key) | ((own_key == other.own_key) & (own_place < other.own_place));
  }
  __device__ SortSlot from_lane(int mask) const {
    return {__shfl_xor_sync(0xffffffffu, own_key, mask),
            __shfl_xor_sync(0xffffffffu, own_place, mask)};
  }
};

// The smaller or the larger one of two slots.
template <class Slot>
__device__ Slot chosen(const Slot& own, const Slot& other, bool is_smaller) {
  return other.precedes(own) == is_smaller ? other : own;
}

// Sorts slot s * kLanes + lane of each of kFibres fibres. Every lane of the warp calls; `lane` is
// the calling lane's number among the kLanes lanes of its fibres.
template <int kLanes, class Slot, int kFibres, int kSlots>
__device__ void sort_slots(Slot (&slots)[kFibres][kSlots], int lane) {
#pragma unroll
  for (int size = 2; size <= kLanes * kSlots; size *= 2) {
#pragma unroll
    for (int f = 0; f < kFibres; ++f) {
      // The first step of a merge: slots i and i ^ (size - 1).
      Slot merged[kSlots];
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int from = size <= kLanes ? s : s ^ (size / kLanes - 1);
        const bool is_smaller =
            size <= kLanes ? (lane & size / 2) == 0 : (s & size / kLanes / 2) == 0;
        merged[s] = chosen(
            slots[f][s], slots[f][from].from_lane((size < kLanes ? size : kLanes) - 1), is_smaller);
      }
#pragma unroll
      for (int s = 0; s < kSlots; ++s) slots[f][s] = merged[s];
    }
#pragma unroll
    for (int distance = size / 4; distance > 0; distance /= 2) {
#pragma unroll
      for (int f = 0; f < kFibres; ++f) {
#pragma unroll
        for (int s = 0; s < kSlots; ++s) {
          Slot& own = slots[f][s];
          if (distance < kLanes) {
            own = chosen(own, own.from_lane(distance), (lane & distance) == 0);
          } else if ((s & distance / kLanes) == 0) {
            Slot& other = slots[f][s | distance / kLanes];
            const Slot smaller = chosen(own, other, true);
            other = chosen(other, own, false);
            own = smaller;
          }
        }
      }
    }
  }
}

}  // namespace gantry::kernels::cuda
