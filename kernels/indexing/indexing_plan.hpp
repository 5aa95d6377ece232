#pragma once

#include <cstdint>

#include <gantry/extend/driver.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/indexing/indexing.hpp"
#include "kernels/strided.hpp"
#include "kernels/target.hpp"

namespace gantry::kernels {

// The plan of index_select, gather and scatter: a loop over positions, each with one index. A POD.
//
// Operand 0, `direct`, has an element at every position: the output of a gather, the input of a
// scatter. Operand 1, `indexed`, is addressed by the index along `dim`: its stride along that dim
// is 0 in `positions`, and `index_stride` here. Operand 2 is the indices.
struct IndexingPlan {
  StridedPlan<3> positions;
  StridedPlan<3> fibres;  // the positions without `dim`
  void* direct = nullptr;
  void* indexed = nullptr;
  const void* indices = nullptr;
  bool is_wide = false;    // indices are i64, else i32
  bool is_checked = true;  // without a fault record: no index is out of range
  IndexRule rule = IndexRule::positive;
  DType dtype = DType::f32;
  int element_bytes = 0;          // per position: of the dtype, or of the words that rows move in
  std::int32_t dim = 0;           // in errors
  std::int64_t index_size = 0;    // valid indices: 0 … index_size - 1
  std::int64_t index_stride = 0;  // of the indexed operand along `dim`
  std::int64_t fibre_length = 0;  // positions along `dim`; the next two are the strides along it
  std::int64_t direct_stride = 0;
  std::int64_t indices_stride = 0;
  std::int64_t indexed_extent = 0;  // exclusive bound of the indexed operand's offsets
  FaultRecord* fault = nullptr;     // null: the host throws
  const char* op = nullptr;         // the op's name in errors: a literal that the GPU never reads
};

// Makes a plan. `index` has the sizes of `direct`; strides of 0 broadcast. With `moves_only` the
// kernel copies elements unchanged, so rows may move as larger words, of up to 16 bytes.
[[nodiscard]] IndexingPlan make_indexing_plan(const IndexUse& use, const Target& target,
                                              const TensorRef& direct, const TensorRef& indexed,
                                              int dim, const TensorRef& index, bool moves_only);

// The index at `offset`, unchecked.
GANTRY_HD inline std::int64_t load_index(const IndexingPlan& plan, std::int64_t offset) {
  return plan.is_wide ? static_cast<const std::int64_t*>(plan.indices)[offset]
                      : static_cast<const std::int32_t*>(plan.indices)[offset];
}

inline const void* indices_from(const IndexingPlan& plan, std::int64_t offset) {
  return static_cast<const char*>(plan.indices) + offset * (plan.is_wide ? 8 : 4);
}

// `plan` with its operands and indices from `offsets` on: the plan of a piece of its loop.
inline IndexingPlan plan_from(const IndexingPlan& plan, const std::int64_t (&offsets)[3]) {
  IndexingPlan part = plan;
  part.direct = static_cast<char*>(plan.direct) + offsets[0] * plan.element_bytes;
  part.indexed = static_cast<char*>(plan.indexed) + offsets[1] * plan.element_bytes;
  part.indices = indices_from(plan, offsets[2]);
  return part;
}

// The position that `index` names in a dim: negative ones count from the end if the rule says so.
GANTRY_HD inline std::int64_t position_of(IndexRule rule, std::int64_t size, std::int64_t index) {
  return index + ((index < 0) & (rule == IndexRule::wrapping) ? size : 0);
}
GANTRY_HD inline std::int64_t position_of(const IndexingPlan& plan, std::int64_t index) {
  return position_of(plan.rule, plan.index_size, index);
}

// True if `position` is in range. Neither function has a branch, for vector code.
GANTRY_HD inline bool is_inside(std::int64_t size, std::int64_t position) {
  return (position >= 0) & (position < size);
}
GANTRY_HD inline bool is_inside(const IndexingPlan& plan, std::int64_t position) {
  return is_inside(plan.index_size, position);
}

// The plan of index_offsets: a loop over the positions of the output, operand 0. Operands 1 and 2
// are the indices of two dims. A POD.
struct OffsetsPlan {
  StridedPlan<3> positions;
  std::int64_t* out = nullptr;
  IndexingPlan terms[2];  // indices, is_wide, rule, index_size, index_stride, fault, op, dim
  int count = 1;          // terms in use
};

namespace host {
// Throws IndexError for the first index out of range. For CPU tensors, whose errors are immediate.
void check_indices(const IndexingPlan& plan, const TensorRef& index);
void gather(const IndexingPlan& plan);
void scatter(const IndexingPlan& plan, ScatterMode mode);
void index_offsets(const OffsetsPlan& plan);
}  // namespace host

namespace cuda {
void gather(void* stream, const IndexingPlan& plan);
void index_offsets(void* stream, const OffsetsPlan& plan);

// True if the fibres are dense rows that fit into shared memory.
[[nodiscard]] bool has_short_rows(const IndexingPlan& plan);
// One thread per fibre, for many or short fibres.
void scatter_fibres(void* stream, const IndexingPlan& plan, ScatterMode mode);

// True if lanes own the destinations: few updates of floating elements, whose order matters.
[[nodiscard]] bool has_owners(const IndexingPlan& plan, ScatterMode mode);
// Warps whose lanes make all writes to their destinations. The fibres may share their indices.
void scatter_owners(void* stream, const IndexingPlan& plan, ScatterMode mode);

// True if a block sorts the writes of a fibre: updates of floating elements, whose order matters.
[[nodiscard]] bool has_tiles(const IndexingPlan& plan, ScatterMode mode);
// Blocks that sort the writes of a few fibres.
void scatter_tiles(void* stream, const IndexingPlan& plan, ScatterMode mode);

// Bytes of scratch memory for scatter_writes; 0 if it needs none.
[[nodiscard]] std::size_t scatter_writes_bytes(const IndexingPlan& plan, ScatterMode mode);
// A thread for each write, or a warp for all writes to a few destinations: for few long fibres. At
// most 2^31 - 1 positions.
void scatter_writes(void* stream, const IndexingPlan& plan, ScatterMode mode, void* scratch);

// The same for indices that all fibres share. At most 2^31 - 1 indices.
[[nodiscard]] std::size_t index_scatter_bytes(const IndexingPlan& plan, ScatterMode mode);
void index_scatter(void* stream, const IndexingPlan& plan, ScatterMode mode, void* scratch);
}  // namespace cuda

}  // namespace gantry::kernels
