// What index lists select, element by element, computed without the code under test.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/index.hpp>

#include "tests/tensor/raw_tensor.hpp"

namespace gantry::testing {

/// The elements that an index list selects: their row-major indices in the tensor.
struct Selection {
  Shape sizes;
  std::vector<std::int64_t> elements;
};

/// One axis of a list: positions along a dim of the tensor (-1: a new dim). `shape` is that of an
/// index tensor; without it, the axis stays where it is.
struct OracleAxis {
  int dim = -1;
  std::vector<std::int64_t> positions;
  std::optional<Shape> shape;
};

/// The coordinates of element `i` of a row-major array.
inline Dims coordinates(const Shape& sizes, std::int64_t i) {
  Dims result = sizes;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    result[d] = i % sizes[d];
    i /= sizes[d];
  }
  return result;
}

/// The element of an array of `shape` that is broadcast to the last coordinates `at`.
inline std::int64_t broadcast_element(const Shape& shape, const Dims& at) {
  std::int64_t result = 0;
  for (int d = 0; d < shape.size(); ++d) {
    const std::int64_t c = at[at.size() - shape.size() + d];
    result = result * shape[d] + (shape[d] == 1 ? 0 : c);
  }
  return result;
}

/// The elements that `axes` select in a tensor of shape `sizes`; every dim has one axis.
inline Selection select_elements(const Shape& sizes, const std::vector<OracleAxis>& axes) {
  Shape common;
  std::vector<int> advanced;
  for (int a = 0; a < static_cast<int>(axes.size()); ++a) {
    const OracleAxis& axis = axes[static_cast<std::size_t>(a)];
    if (!axis.shape) continue;
    advanced.push_back(a);
    while (common.size() < axis.shape->size()) common.insert(0, 1);
    for (int d = 0; d < axis.shape->size(); ++d) {
      std::int64_t& size = common[common.size() - axis.shape->size() + d];
      if ((*axis.shape)[d] != 1) size = (*axis.shape)[d];
    }
  }
  const bool adjacent = advanced.empty() ||
                        advanced.back() - advanced.front() + 1 == static_cast<int>(advanced.size());
  Selection result;
  std::vector<int> order;  // axes of the result; -1: the dims of the index tensors
  for (int a = 0; a < static_cast<int>(axes.size()); ++a) {
    if (axes[static_cast<std::size_t>(a)].shape) {
      if (adjacent && a == advanced.front()) order.push_back(-1);
    } else {
      order.push_back(a);
    }
  }
  if (!adjacent) order.insert(order.begin(), -1);
  for (const int a : order) {
    if (a >= 0) {
      result.sizes.push_back(
          static_cast<std::int64_t>(axes[static_cast<std::size_t>(a)].positions.size()));
    } else {
      for (const std::int64_t size : common) result.sizes.push_back(size);
    }
  }
  for (std::int64_t i = 0; i < result.sizes.product(); ++i) {
    const Dims at = coordinates(result.sizes, i);
    Dims source = Dims::filled(sizes.size(), 0);
    int d = 0;
    for (const int a : order) {
      if (a >= 0) {
        const OracleAxis& axis = axes[static_cast<std::size_t>(a)];
        if (axis.dim >= 0) source[axis.dim] = axis.positions[static_cast<std::size_t>(at[d])];
        ++d;
        continue;
      }
      Dims in_common;
      for (int k = 0; k < common.size(); ++k) in_common.push_back(at[d + k]);
      for (const int index : advanced) {
        const OracleAxis& axis = axes[static_cast<std::size_t>(index)];
        if (axis.dim < 0) continue;
        source[axis.dim] =
            axis.positions[static_cast<std::size_t>(broadcast_element(*axis.shape, in_common))];
      }
      d += common.size();
    }
    std::int64_t element = 0;
    for (int k = 0; k < sizes.size(); ++k) element = element * sizes[k] + source[k];
    result.elements.push_back(element);
  }
  return result;
}

/// A random index list for a tensor, and what it selects.
class RandomIndexList {
 public:
  RandomIndexList(std::mt19937& random, const Shape& sizes, Device device)
      : random_(random), sizes_(sizes), device_(device) {
    common_ = draw_shape();
    const bool uses_ellipsis = draw(4) == 0;
    const int skipped = uses_ellipsis ? draw(sizes.size() + 1) : 0;
    const int before = draw(sizes.size() - skipped + 1);
    const bool has_bools = draw(6) == 0;
    while (dim_ < sizes.size()) {
      if (uses_ellipsis && !ellipsis_done_ && dim_ >= before) add_ellipsis(skipped);
      if (dim_ == sizes.size()) break;
      if (!uses_ellipsis && draw(8) == 0) break;  // the rest stays whole
      if (draw(6) == 0) add_none();
      if (has_bools && draw(3) == 0) add_bool();
      add_dims();
    }
    while (dim_ < sizes.size()) keep();
  }

  [[nodiscard]] const std::vector<Index>& list() const { return list_; }
  /// False if the list selects by bools only or has more dims than a tensor may have.
  [[nodiscard]] bool is_usable() const {
    int dims = 0;
    int viewed = 0;
    bool bools = false;
    bool tensors = false;
    for (const OracleAxis& axis : axes_) {
      if (!axis.shape) ++dims;
      if (!axis.shape || axis.dim >= 0) ++viewed;
      bools = bools || (axis.shape && axis.dim < 0);
      tensors = tensors || (axis.shape && axis.dim >= 0);
    }
    return (!bools || tensors) && dims + 2 <= kMaxDims && viewed <= kMaxDims;
  }
  [[nodiscard]] Selection selection() const {
    std::vector<OracleAxis> axes;
    for (const OracleAxis& axis : axes_) {
      if (axis.dim != kInteger) axes.push_back(axis);
    }
    return select_elements_with_integers(axes);
  }
  [[nodiscard]] std::string str() const {
    std::string text;
    for (const Index& index : list_) text += (text.empty() ? "" : ", ") + index.str();
    return text;
  }

 private:
  static constexpr int kInteger = -2;

  int draw(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  Shape draw_shape() {
    Shape result;
    const int dims = 1 + draw(2);
    for (int d = 0; d < dims; ++d) result.push_back(draw(12) == 0 ? 0 : 1 + draw(4));
    return result;
  }

  Selection select_elements_with_integers(const std::vector<OracleAxis>& axes) const {
    // Integers become axes of one position, whose dims of size 1 vanish from the result.
    Selection result = select_elements(sizes_, axes);
    const std::int64_t offset = integer_offset();
    for (std::int64_t& element : result.elements) element += offset;
    return result;
  }
  std::int64_t integer_offset() const {
    std::int64_t result = 0;
    for (const auto& [dim, position] : integers_) {
      std::int64_t stride = 1;
      for (int d = dim + 1; d < sizes_.size(); ++d) stride *= sizes_[d];
      result += position * stride;
    }
    return result;
  }

  void add_ellipsis(int dims) {
    ellipsis_done_ = true;
    list_.emplace_back(Ellipsis);
    for (int d = 0; d < dims && dim_ < sizes_.size(); ++d) keep();
  }
  void add_none() {
    list_.emplace_back(None);
    axes_.push_back({-1, {0}, {}});
  }
  void add_bool() {
    const bool flag = draw(8) != 0 || common_.product() != 0;
    list_.emplace_back(flag || common_ != Shape{0} ? Index(true) : Index(false));
    axes_.push_back({-1, {0}, Shape{1}});
  }
  void keep() {
    OracleAxis axis{dim_, {}, {}};
    for (std::int64_t p = 0; p < sizes_[dim_]; ++p) axis.positions.push_back(p);
    axes_.push_back(axis);
    ++dim_;
  }

  void add_dims() {
    const std::int64_t size = sizes_[dim_];
    switch (draw(5)) {
      case 0:
        if (size == 0) return add_slice();
        {
          const std::int64_t position = draw(static_cast<int>(size));
          const std::int64_t given = draw(2) == 0 ? position : position - size;
          list_.push_back(draw(4) == 0
                              ? Index(scalar_tensor(given, {.dtype = i64, .device = device_}))
                              : Index(given));
          integers_.emplace_back(dim_, position);
          axes_.push_back({kInteger, {}, {}});
          ++dim_;
        }
        return;
      case 1:
        return add_slice();
      case 2:
        if (common_.size() == 1) return add_mask();
        [[fallthrough]];
      default:
        return add_positions();
    }
  }

  void add_slice() {
    const std::int64_t size = sizes_[dim_];
    const auto bound = [&] { return static_cast<std::int64_t>(draw(11)) - 5; };
    const std::int64_t first = bound();
    const std::int64_t last = bound();
    const std::int64_t step = 1 + draw(3);
    list_.emplace_back(Slice(first, last, step));
    OracleAxis axis{dim_, {}, {}};
    const std::int64_t start = std::clamp<std::int64_t>(first < 0 ? first + size : first, 0, size);
    const std::int64_t stop = std::clamp<std::int64_t>(last < 0 ? last + size : last, 0, size);
    for (std::int64_t p = start; p < stop; p += step) axis.positions.push_back(p);
    axes_.push_back(axis);
    ++dim_;
  }

  Device index_device() { return draw(4) == 0 ? Device::cpu() : device_; }

  void add_positions() {
    const std::int64_t size = sizes_[dim_];
    Shape shape = common_;
    while (shape.size() > 1 && draw(3) == 0) shape.erase(0);
    for (int d = 0; d < shape.size(); ++d) {
      if (shape[d] != 0 && draw(4) == 0) shape[d] = 1;
    }
    if (size == 0 && shape.product() != 0) return add_slice();
    OracleAxis axis{dim_, {}, shape};
    std::vector<std::int64_t> given;
    for (std::int64_t i = 0; i < shape.product(); ++i) {
      const std::int64_t position = draw(static_cast<int>(size));
      axis.positions.push_back(position);
      given.push_back(draw(2) == 0 ? position : position - size);
    }
    Tensor index = tensor(given, {.dtype = draw(2) == 0 ? i64 : i32}).view(shape);
    if (draw(3) == 0 && shape.size() == 2) index = index.t().clone().t();
    if (draw(3) == 0) index = stack_twice(index);
    list_.emplace_back(index.to(index_device()));
    axes_.push_back(axis);
    ++dim_;
  }

  // The same elements with stride 2.
  static Tensor stack_twice(const Tensor& index) {
    const Tensor wide = index.unsqueeze(-1).repeat_interleave(2, -1);
    return wide.select(-1, 0);
  }

  void add_mask() {
    const int dims = dim_ + 1 < sizes_.size() && draw(2) == 0 ? 2 : 1;
    Shape shape;
    for (int d = 0; d < dims; ++d) shape.push_back(sizes_[dim_ + d]);
    const std::int64_t numel = shape.product();
    // As many selected elements as the other index tensors have, or one.
    const std::int64_t wanted = std::min<std::int64_t>(common_.product(), numel);
    const std::int64_t chosen =
        wanted == common_.product() ? wanted : std::min<std::int64_t>(1, numel);
    if (chosen != common_.product() && chosen != 1) return add_slice();
    std::vector<std::int64_t> order(static_cast<std::size_t>(numel));
    for (std::int64_t i = 0; i < numel; ++i) order[static_cast<std::size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), random_);
    order.resize(static_cast<std::size_t>(chosen));
    std::sort(order.begin(), order.end());
    std::vector<std::int64_t> flags(static_cast<std::size_t>(numel), 0);
    for (const std::int64_t i : order) flags[static_cast<std::size_t>(i)] = 1;
    const Tensor mask = tensor(flags, {.dtype = draw(3) == 0 ? u8 : bool_}).view(shape);
    list_.emplace_back(mask.to(index_device()));
    for (int d = 0; d < dims; ++d) {
      OracleAxis axis{dim_, {}, Shape{chosen}};
      for (const std::int64_t i : order) axis.positions.push_back(coordinates(shape, i)[d]);
      axes_.push_back(axis);
      ++dim_;
    }
  }

  std::mt19937& random_;
  Shape sizes_;
  Device device_;
  Shape common_;
  int dim_ = 0;
  bool ellipsis_done_ = false;
  std::vector<Index> list_;
  std::vector<OracleAxis> axes_;
  std::vector<std::pair<int, std::int64_t>> integers_;
};

}  // namespace gantry::testing
