#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/indexing/compaction.hpp"
#include "kernels/reductions/merge_counters.hpp"
#include "kernels/strided_index.hpp"

namespace gantry::kernels {

// The work of the second pass on a selected element.
enum class CompactionKind : std::uint8_t { coordinates, offsets, pack, unpack };

// The plan of both passes. A POD.
struct CompactionPlan {
  std::int64_t numel = 0;
  std::uint64_t* bits = nullptr;
  std::int64_t* sums = nullptr;

  // The first pass.
  const void* mask = nullptr;
  StridedIndex mask_index;       // offsets of the mask's elements, in row-major order
  int mask_bytes = 1;            // per element
  std::uint64_t value_bits = 0;  // an element is not zero if it has one of these bits

  // The second pass.
  CompactionKind kind = CompactionKind::pack;
  std::int64_t limit = 0;
  StridedIndex places;  // offsets: strides of the sum; pack, unpack: the unpacked operand
  void* unpacked = nullptr;
  void* packed = nullptr;          // or the coordinates, or the offsets
  std::int64_t packed_stride = 1;  // between two ranks
  std::int64_t dim_stride = 0;     // coordinates: between two dims
  int element_bytes = 8;
  std::int32_t ndim = 0;  // coordinates: of the mask, with its sizes
  std::int64_t sizes[kMaxDims] = {};
};

// The offset of the row-major index `i`. kLinear: the index has at most one dim.
template <bool kLinear>
GANTRY_HD std::int64_t offset_in(const StridedIndex& index, std::int64_t i) {
  return kLinear ? i * index.strides[0] : index.offset(i);
}

// True if the element at row-major index `i` of the mask is not zero. W is a word of its size.
template <class W, bool kLinear>
GANTRY_HD bool is_selected(const CompactionPlan& plan, std::int64_t i) {
  const W word = static_cast<const W*>(plan.mask)[offset_in<kLinear>(plan.mask_index, i)];
  return (word & static_cast<W>(plan.value_bits)) != 0;
}

// Writes the coordinates of the row-major index `i`. I: 32-bit division is several times faster.
template <class I>
GANTRY_HD void store_coordinates(const CompactionPlan& plan, I i, std::int64_t* out) {
  for (std::int32_t d = plan.ndim - 1; d > 0; --d) {
    const I size = static_cast<I>(plan.sizes[d]);
    const I quotient = i / size;
    out[d * plan.dim_stride] = static_cast<std::int64_t>(i - quotient * size);
    i = quotient;
  }
  out[0] = static_cast<std::int64_t>(i);
}

// Handles the selected element `i` of rank `rank`. T is the raw word of an element.
template <CompactionKind kKind, class T, bool kLinear>
GANTRY_HD void compact_element(const CompactionPlan& plan, std::int64_t i, std::int64_t rank) {
  if (rank >= plan.limit) return;
  T* const packed = static_cast<T*>(plan.packed) + rank * plan.packed_stride;
  if constexpr (kKind == CompactionKind::coordinates) {
    if (i <= 0xffffffffLL) {
      store_coordinates(plan, static_cast<std::uint32_t>(i), packed);
    } else {
      store_coordinates(plan, static_cast<std::uint64_t>(i), packed);
    }
  } else if constexpr (kKind == CompactionKind::offsets) {
    *packed = static_cast<T>(offset_in<kLinear>(plan.places, i));
  } else if constexpr (kKind == CompactionKind::pack) {
    *packed = static_cast<const T*>(plan.unpacked)[offset_in<kLinear>(plan.places, i)];
  } else {
    static_cast<T*>(plan.unpacked)[offset_in<kLinear>(plan.places, i)] = *packed;
  }
}

namespace host {
void read_mask(const CompactionPlan& plan);
void compact(const CompactionPlan& plan);
}  // namespace host

namespace cuda {
// True if read_mask counts its blocks: it then uses a counter, and else scratch memory.
[[nodiscard]] bool sums_in_last_block(const CompactionPlan& plan);
// Bytes of scratch memory for read_mask.
[[nodiscard]] std::size_t read_mask_bytes(const CompactionPlan& plan);
void read_mask(void* stream, const CompactionPlan& plan, const MergeCounters& counters,
               void* scratch);
void compact(const char* op, void* stream, const CompactionPlan& plan);
}  // namespace cuda

}  // namespace gantry::kernels
