// The positions that indices name, read for several rows at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/host/indexing/index_fault.hpp"

namespace gantry::kernels::host {

// The positions that a plan's indices name, in the order of its rows. Indices that several rows
// have next to each other, or in common, are read and checked together.
//
// Indices of CPU tensors are checked before the operation, or here if it fills a new array. If they
// are positions as they are, and the operation does not write to their memory, they are not copied.
class PositionWindow {
 public:
  // Writes to `plan.direct`, or to `plan.indexed`.
  enum class Writes { direct, indexed };

  PositionWindow(const IndexingPlan& plan, Writes writes)
      : plan_(plan), reader_(plan), dense_count_(dense_count(plan.positions)) {
    const bool are_positions =
        plan.is_wide && plan.fault == nullptr && plan.rule == IndexRule::positive;
    if (are_positions && dense_count_ > 0 && !is_written(writes)) {
      positions_in_place_ = static_cast<const std::int64_t*>(plan.indices);
    }
  }

  // The positions of `n` indices from `offset` on, at most kPositions.
  const std::int64_t* at(std::int64_t offset, std::int64_t stride, int n) {
    if (positions_in_place_ != nullptr && (stride == 1 || n == 1)) {
      if (!plan_.is_checked) check_in_place(offset, n);
      return positions_in_place_ + offset;
    }
    if (offset >= begin_ && offset + n <= end_) return positions_ + (offset - begin_);
    begin_ = end_ = offset;
    if (stride == 1 || n == 1) {
      stride = 1;
      n = std::max(n, static_cast<int>(std::min<std::int64_t>(kPositions, dense_count_ - offset)));
      end_ = offset + n;
    }
    are_inside_ = reader_.read(positions_, offset, stride, n);
    if (!are_inside_) report_faults(plan_, positions_, offset, stride, n);
    return positions_;
  }
  // True if none of the indices read last is out of range.
  [[nodiscard]] bool are_inside() const { return are_inside_; }

 private:
  // The number of indices from the first one on, if they lie without gaps in the order of the rows.
  static std::int64_t dense_count(const StridedPlan<3>& plan) {
    std::int64_t count = 1;
    for (int dim = 0; dim < plan.ndim; ++dim) {
      const std::int64_t stride = plan.strides[dim][2];
      if (stride == 0) continue;
      if (stride != count) return 0;
      count *= plan.sizes[dim];
    }
    return count;
  }

  void check_in_place(std::int64_t offset, int n) const {
    const std::int64_t* const positions = positions_in_place_ + offset;
    const std::int64_t size = plan_.index_size;
    std::int64_t is_outside = 0;
    for (int i = 0; i < n; ++i) is_outside |= is_inside(size, positions[i]) ? 0 : 1;
    if (is_outside == 0) return;
    for (int i = 0; i < n; ++i) {
      if (!is_inside(size, positions[i])) report_fault(plan_, positions[i]);
    }
  }

  // True if the written operand may share memory with the indices.
  [[nodiscard]] bool is_written(Writes writes) const {
    const bool is_direct = writes == Writes::direct;
    std::int64_t low = 0;
    std::int64_t high = 1;
    const auto add = [&](std::int64_t size, std::int64_t stride) {
      (stride < 0 ? low : high) += (size - 1) * stride;
    };
    for (int dim = 0; dim < plan_.positions.ndim; ++dim) {
      add(plan_.positions.sizes[dim], plan_.positions.strides[dim][is_direct ? 0 : 1]);
    }
    if (!is_direct) add(plan_.index_size, plan_.index_stride);
    const auto* const data = static_cast<const char*>(is_direct ? plan_.direct : plan_.indexed);
    const auto* const indices = static_cast<const char*>(plan_.indices);
    return data + low * plan_.element_bytes < indices_from(plan_, dense_count_) &&
           indices < data + high * plan_.element_bytes;
  }

  const IndexingPlan& plan_;
  IndexReader reader_;
  std::int64_t dense_count_;
  const std::int64_t* positions_in_place_ = nullptr;
  std::int64_t begin_ = 0;  // the offsets whose positions are known, which have no gaps
  std::int64_t end_ = 0;
  bool are_inside_ = true;
  std::int64_t positions_[kPositions];
};

}  // namespace gantry::kernels::host
