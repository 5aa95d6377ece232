#pragma once

#include <cstdint>

#include <gantry/device/driver.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/indexing.hpp"
#include "kernels/strided.hpp"
#include "kernels/target.hpp"

namespace gantry::kernels {

// What index_select, gather and scatter execute: a loop over positions, each with one index.
//
// Operand 0 is the tensor that has an element at every position (the output of a gather, the input
// of a scatter), operand 1 the one whose coordinate along `dim` is the index (its stride along that
// dim is 0 in `positions` and `index_stride` here), operand 2 the indices.
struct IndexingPlan {
  StridedPlan<3> positions;
  StridedPlan<3> lines;  // positions without `dim`
  void* direct = nullptr;
  void* indexed = nullptr;
  const void* indices = nullptr;
  bool is_wide = false;  // indices are i64, else i32
  DType dtype = DType::f32;
  int element_bytes =
      0;  // of one position: the dtype's, or 16 where rows may be moved in such words
  std::int32_t dim = 0;
  std::int64_t index_size = 0;    // valid indices are 0 … index_size - 1
  std::int64_t index_stride = 0;  // of the indexed operand along `dim`
  std::int64_t line_length = 0;   // positions along `dim`, and the strides there
  std::int64_t direct_stride = 0;
  std::int64_t indices_stride = 0;
  std::int64_t indexed_extent = 0;  // the indexed operand's offsets lie below this
  FaultRecord* fault = nullptr;     // none: the host throws
  const char* op = nullptr;         // what faults name; a string literal, which the GPU never reads
};

// `index` must have the sizes of `direct` (strides of 0 broadcast). With `moves_only`, elements are
// not looked into and may be moved in larger words.
[[nodiscard]] IndexingPlan make_indexing_plan(const char* op, const Target& target,
                                              const TensorRef& direct, const TensorRef& indexed,
                                              int dim, const TensorRef& index, bool moves_only);

// The i-th index; not yet checked.
GANTRY_HD inline std::int64_t load_index(const IndexingPlan& plan, std::int64_t offset) {
  return plan.is_wide ? static_cast<const std::int64_t*>(plan.indices)[offset]
                      : static_cast<const std::int32_t*>(plan.indices)[offset];
}

// False if the index is out of range; negative ones are.
GANTRY_HD inline bool is_inside(const IndexingPlan& plan, std::int64_t index) {
  return index >= 0 && index < plan.index_size;
}

namespace host {
// Throws IndexError for the first index that is out of range; used where errors are raised at once.
void check_indices(const IndexingPlan& plan, const TensorRef& index);
void gather(const IndexingPlan& plan);
void scatter(const IndexingPlan& plan, bool accumulate);
}  // namespace host

namespace cuda {
void gather(void* stream, const IndexingPlan& plan);

// One thread per line; good if there are many lines or they are short.
void scatter_lines(void* stream, const IndexingPlan& plan, bool accumulate);

// Scratch bytes of scatter_sorted.
[[nodiscard]] std::size_t scatter_sorted_bytes(const IndexingPlan& plan);
// Sorts the positions by where they go; good for few long lines. Fewer than 2^31 positions.
void scatter_sorted(void* stream, const IndexingPlan& plan, bool accumulate, void* scratch);
}  // namespace cuda

}  // namespace gantry::kernels
