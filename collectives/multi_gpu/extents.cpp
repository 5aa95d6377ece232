#include "collectives/multi_gpu/extents.hpp"

namespace gantry::comm {

SortedExtents::Extent SortedExtents::extent_of(const Tensor& tensor, std::size_t index) {
  std::size_t extent = 1;
  for (int dim = 0; dim < tensor.dim(); ++dim) {
    extent += static_cast<std::size_t>((tensor.size(dim) - 1) * tensor.stride(dim));
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data());
  return {begin, begin + extent * tensor.element_size(), index, &tensor};
}

SortedExtents::SortedExtents(std::span<const Tensor> tensors) {
  extents_.reserve(std::max(tensors.size(), kFew));
  for (std::size_t i = 0; i < tensors.size(); ++i) add(tensors[i], i);
  sort();
}

void SortedExtents::sort() {
  std::ranges::sort(extents_, {}, &Extent::begin);
  std::uintptr_t reach = 0;
  for (Extent& extent : extents_) extent.reach = reach = std::max(reach, extent.end);
}

std::optional<std::pair<std::size_t, std::size_t>> SortedExtents::find_shared() const {
  std::optional<std::pair<std::size_t, std::size_t>> shared;
  for (std::size_t i = 1; i < extents_.size() && !shared; ++i) {
    const Extent& one = extents_[i];
    (void)any_before(i, one.begin, *one.tensor,
                     [&](std::size_t other, detail::Overlap /*overlap*/) {
                       shared = std::minmax(one.index, other);
                       return true;
                     });
  }
  return shared;
}

}  // namespace gantry::comm
