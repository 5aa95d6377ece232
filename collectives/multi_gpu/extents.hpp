#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gantry/tensor/tensor.hpp>

#include "tensor/overlap.hpp"

namespace gantry::comm {

// The memory of a list of tensors by address, so that only neighbours are compared: lists may be
// long. Extents of interleaved tensors may overlap, so all that begin early enough are neighbours.
// The list outlives it.
class SortedExtents {
 public:
  explicit SortedExtents(std::span<const Tensor> tensors);

  // The indices of two tensors that share memory, the smaller one first.
  [[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> find_shared() const;

  // Calls f(index, overlap) for the tensors that share memory with `tensor` until it returns true.
  // True if it did.
  template <class F>
  [[nodiscard]] bool any_shared(const Tensor& tensor, const F& f) const {
    if (tensor.numel() == 0) return false;
    const Extent extent = extent_of(tensor, 0);
    const auto behind = std::ranges::lower_bound(extents_, extent.end, {}, &Extent::begin);
    return any_before(static_cast<std::size_t>(behind - extents_.begin()), extent.begin, tensor, f);
  }

 private:
  // The memory between the first and the last element of a tensor.
  struct Extent {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::size_t index;
    std::uintptr_t reach = 0;  // the last end of all extents up to this one
  };
  static Extent extent_of(const Tensor& tensor, std::size_t index);

  // Of the first `count` extents, which begin before the end of `tensor`.
  template <class F>
  bool any_before(std::size_t count, std::uintptr_t begin, const Tensor& tensor, const F& f) const {
    for (std::size_t at = count; at > 0 && extents_[at - 1].reach > begin; --at) {
      const Extent& other = extents_[at - 1];
      if (other.end <= begin) continue;
      const detail::Overlap overlap = detail::overlap_of(tensors_[other.index], tensor);
      if (overlap != detail::Overlap::none && f(other.index, overlap)) return true;
    }
    return false;
  }

  std::span<const Tensor> tensors_;
  std::vector<Extent> extents_;  // of the tensors that have elements
};

}  // namespace gantry::comm
