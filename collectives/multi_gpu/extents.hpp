#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gantry/tensor/tensor.hpp>

#include "tensor/overlap.hpp"

namespace gantry::comm {

// The memory of a list of tensors by address, so that only neighbours are compared: lists may be
// long. Extents of interleaved tensors may overlap, so all that begin early enough are neighbours.
// The tensors outlive it. Short lists allocate nothing.
class SortedExtents {
 public:
  // Of a list that add() makes.
  SortedExtents() { extents_.reserve(kFew); }
  explicit SortedExtents(std::span<const Tensor> tensors);
  SortedExtents(const SortedExtents&) = delete;
  SortedExtents& operator=(const SortedExtents&) = delete;

  // Adds a tensor; sort() follows the last one.
  void add(const Tensor& tensor, std::size_t index) {
    if (tensor.numel() > 0) extents_.push_back(extent_of(tensor, index));
  }
  void sort();

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
    const Tensor* tensor;
    std::uintptr_t reach = 0;  // the last end of all extents up to this one
  };
  static Extent extent_of(const Tensor& tensor, std::size_t index);

  // Of the first `count` extents, which begin before the end of `tensor`.
  template <class F>
  bool any_before(std::size_t count, std::uintptr_t begin, const Tensor& tensor, const F& f) const {
    for (std::size_t at = count; at > 0 && extents_[at - 1].reach > begin; --at) {
      const Extent& other = extents_[at - 1];
      if (other.end <= begin) continue;
      const detail::Overlap overlap = detail::overlap_of(*other.tensor, tensor);
      if (overlap != detail::Overlap::none && f(other.index, overlap)) return true;
    }
    return false;
  }

  static constexpr std::size_t kFew = 16;
  alignas(Extent) std::array<std::byte, kFew * sizeof(Extent)> few_;
  std::pmr::monotonic_buffer_resource memory_{few_.data(), few_.size()};
  std::pmr::vector<Extent> extents_{&memory_};  // of the tensors that have elements
};

}  // namespace gantry::comm
