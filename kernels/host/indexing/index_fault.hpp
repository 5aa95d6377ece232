#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/indexing/indexing_plan.hpp"

namespace gantry::kernels::host {

// Reports an index out of range: in the device's fault record, unless the record is taken; without
// a record, by throwing IndexError. Note [Index faults].
void report_fault(const IndexingPlan& plan, std::int64_t index);

// Positions that are read together.
inline constexpr int kPositions = 256;

// The indices of a plan.
class IndexReader {
 public:
  explicit IndexReader(const IndexingPlan& plan)
      : indices_(plan.indices), size_(plan.index_size), rule_(plan.rule), is_wide_(plan.is_wide) {}

  [[nodiscard]] std::int64_t index(std::int64_t offset) const {
    return is_wide_ ? static_cast<const std::int64_t*>(indices_)[offset]
                    : static_cast<const std::int32_t*>(indices_)[offset];
  }
  // Writes the positions that `n` indices from `offset` on name. Returns false if one is out of
  // range, whose position is -1.
  bool read(std::int64_t* positions, std::int64_t offset, std::int64_t stride, int n) const {
    if (is_wide_) {
      copy(positions, static_cast<const std::int64_t*>(indices_) + offset, stride, n);
    } else {
      copy(positions, static_cast<const std::int32_t*>(indices_) + offset, stride, n);
    }
    const IndexRule rule = rule_;  // copies, because a position may be a member
    const std::int64_t size = size_;
    for (int i = 0; i < n; ++i) {
      const std::int64_t position = position_of(rule, size, positions[i]);
      positions[i] = is_inside(size, position) ? position : -1;
    }
    std::int64_t outside = 0;
    for (int i = 0; i < n; ++i) outside |= positions[i];
    return outside >= 0;
  }

 private:
  template <class I>
  static void copy(std::int64_t* to, const I* from, std::int64_t stride, int n) {
    if (stride == 1) {
      for (int i = 0; i < n; ++i) to[i] = from[i];
    } else {
      for (int i = 0; i < n; ++i) to[i] = from[i * stride];
    }
  }

  const void* indices_;
  std::int64_t size_;
  IndexRule rule_;
  bool is_wide_;
};

// Reports the faults among `n` indices from `offset` on.
inline void report_faults(const IndexingPlan& plan, const std::int64_t* positions,
                          std::int64_t offset, std::int64_t stride, int n) {
  const IndexReader indices(plan);
  for (int i = 0; i < n; ++i) {
    if (positions[i] < 0) report_fault(plan, indices.index(offset + i * stride));
  }
}

// Calls f(offsets) for the first position of every row of `plan`, in increasing order. A row is the
// first dim, or the first `dims` ones.
template <class F>
void for_each_row(const StridedPlan<3>& plan, F&& f, int dims = 1) {
  std::int64_t index[kMaxDims] = {};
  std::int64_t offsets[3] = {};
  std::int64_t row = 1;
  for (int dim = 0; dim < dims; ++dim) row *= plan.sizes[dim];
  for (std::int64_t done = 0; done < plan.numel; done += row) {
    f(offsets);
    for (int dim = dims; dim < plan.ndim; ++dim) {
      for (int k = 0; k < 3; ++k) offsets[k] += plan.strides[dim][k];
      if (++index[dim] < plan.sizes[dim]) break;
      for (int k = 0; k < 3; ++k) offsets[k] -= plan.strides[dim][k] * plan.sizes[dim];
      index[dim] = 0;
    }
  }
}

// Calls f(offsets) for every position of `plan`, in increasing order.
template <class F>
void for_each_position(const StridedPlan<3>& plan, F&& f) {
  for_each_row(plan, [&](const std::int64_t(&row)[3]) {
    std::int64_t offsets[3];
    std::copy_n(row, 3, offsets);
    for (std::int64_t i = 0; i < plan.sizes[0]; ++i) {
      f(offsets);
      for (int k = 0; k < 3; ++k) offsets[k] += plan.strides[0][k];
    }
  });
}

}  // namespace gantry::kernels::host
