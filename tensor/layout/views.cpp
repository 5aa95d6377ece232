#include <fmt/format.h>

#include <algorithm>
#include <array>

#include <gantry/core/error.hpp>
#include <gantry/tensor/tensor.hpp>

#include "tensor/check.hpp"
#include "tensor/impl/stride_algebra.hpp"
#include "tensor/layout/broadcast.hpp"

// Views of the same elements: only sizes, strides and offsets change.
namespace gantry {

Tensor Tensor::transpose(Dim dim0, Dim dim1) const {
  detail::check_defined("transpose", "self", *this);
  const int first = detail::wrap_dim("transpose", dim0, *this);
  const int second = detail::wrap_dim("transpose", dim1, *this);
  Shape new_sizes = sizes();
  Dims new_strides = strides();
  std::swap(new_sizes[first], new_sizes[second]);
  std::swap(new_strides[first], new_strides[second]);
  return restride(new_sizes, new_strides, storage_offset());
}

Tensor Tensor::t() const {
  detail::check_defined("t", "self", *this);
  if (dim() > 2) {
    throw ShapeError(
        fmt::format("t: expects a tensor with <= 2 dimensions, but self is {}D", dim()),
        device().str());
  }
  return dim() < 2 ? alias() : transpose(0, 1);
}

Tensor Tensor::permute(const Dims& dims) const {
  detail::check_defined("permute", "self", *this);
  if (dims.size() != dim()) {
    throw ShapeError(
        fmt::format(
            "permute: number of dimensions in the tensor input does not match the length of the "
            "desired ordering of dimensions i.e. input.dim() = {} is not equal to len(dims) = {}",
            dim(), dims.size()),
        device().str());
  }
  Shape new_sizes = sizes();
  Dims new_strides = strides();
  unsigned seen = 0;
  for (int d = 0; d < dims.size(); ++d) {
    const int from = detail::wrap_dim("permute", dims[d], *this);
    if ((seen & (1u << from)) != 0) {
      throw ShapeError(
          fmt::format("permute: duplicate dims are not allowed, but got {}", dims.str()),
          device().str());
    }
    seen |= 1u << from;
    new_sizes[d] = sizes()[from];
    new_strides[d] = strides()[from];
  }
  return restride(new_sizes, new_strides, storage_offset());
}

Tensor Tensor::movedim(const Axes& source, const Axes& destination) const {
  detail::check_defined("movedim", "self", *this);
  if (source.dims().size() != destination.dims().size()) {
    throw ShapeError(
        fmt::format(
            "movedim: Invalid source or destination dims: source ({} dims) should contain the same "
            "number of dims as destination ({} dims)",
            source.dims().str(), destination.dims().str()),
        device().str());
  }
  if (source.all()) return alias();
  const Dims from = detail::wrap_dims("movedim", source, *this);
  const Dims to = detail::wrap_dims("movedim", destination, *this);
  if (dim() == 0) return alias();
  Dims order = Dims::filled(dim(), -1);
  for (int i = 0; i < from.size(); ++i) order[static_cast<int>(to[i])] = from[i];
  std::int64_t next = 0;
  for (int d = 0; d < dim(); ++d) {
    if (order[d] >= 0) continue;
    while (std::find(from.begin(), from.end(), next) != from.end()) ++next;
    order[d] = next++;
  }
  return permute(order);
}

Tensor Tensor::squeeze(const Axes& dims) const {
  detail::check_defined("squeeze", "self", *this);
  const Dims chosen = detail::wrap_dims("squeeze", dims, *this);
  Shape new_sizes;
  Dims new_strides;
  for (int d = 0; d < dim(); ++d) {
    const bool drop = sizes()[d] == 1 && std::find(chosen.begin(), chosen.end(), d) != chosen.end();
    if (drop) continue;
    new_sizes.push_back(sizes()[d]);
    new_strides.push_back(strides()[d]);
  }
  return restride(new_sizes, new_strides, storage_offset());
}

Tensor Tensor::unsqueeze(Dim dim) const {
  detail::check_defined("unsqueeze", "self", *this);
  const int at = detail::wrap_dim("unsqueeze", dim, this->dim() + 1, device());
  Shape new_sizes = sizes();
  Dims new_strides = strides();
  const std::int64_t stride = at < this->dim() ? sizes()[at] * strides()[at] : 1;
  new_sizes.insert(at, 1);
  new_strides.insert(at, stride);
  return restride(new_sizes, new_strides, storage_offset());
}

Tensor Tensor::flatten(Dim start_dim, Dim end_dim) const {
  detail::check_defined("flatten", "self", *this);
  const int first = detail::wrap_dim("flatten", start_dim, *this);
  const int last = detail::wrap_dim("flatten", end_dim, *this);
  if (first > last) {
    throw ShapeError(fmt::format("flatten: start_dim cannot come after end_dim, but got {} and {}",
                                 static_cast<int>(start_dim), static_cast<int>(end_dim)),
                     device().str());
  }
  if (dim() == 0) return reshape({1});
  Shape target;
  for (int d = 0; d < dim(); ++d) {
    if (d > first && d <= last) {
      target[first] *= sizes()[d];
    } else {
      target.push_back(sizes()[d]);
    }
  }
  return reshape(target);
}

Tensor Tensor::unflatten(Dim dim, const Shape& sizes) const {
  detail::check_defined("unflatten", "self", *this);
  const int at = detail::wrap_dim("unflatten", dim, *this);
  if (sizes.empty() || this->dim() == 0) {
    throw ShapeError("unflatten: expected a dim to cut up and at least one size", device().str());
  }
  const Shape pieces = detail::infer_sizes("unflatten", sizes, this->sizes()[at], device());
  Shape new_sizes = this->sizes();
  Dims new_strides = strides();
  new_sizes.erase(at);
  new_strides.erase(at);
  std::int64_t stride = strides()[at];
  for (int i = pieces.size() - 1; i >= 0; --i) {
    new_sizes.insert(at, pieces[i]);
    new_strides.insert(at, stride);
    stride *= std::max<std::int64_t>(pieces[i], 1);
  }
  return restride(new_sizes, new_strides, storage_offset());
}

Tensor Tensor::expand(const Shape& sizes) const {
  detail::check_defined("expand", "self", *this);
  const Shape new_sizes = detail::expanded_sizes("expand", this->sizes(), sizes, device());
  const int lead = sizes.size() - dim();
  Dims new_strides = Dims::filled(sizes.size(), 0);
  for (int d = lead; d < sizes.size(); ++d) {
    if (new_sizes[d] == this->sizes()[d - lead]) new_strides[d] = strides()[d - lead];
  }
  return restride(new_sizes, new_strides, storage_offset());
}

Tensor Tensor::expand_as(const Tensor& other) const {
  detail::check_defined("expand_as", "self", *this);
  detail::check_defined("expand_as", "other", other);
  return expand(other.sizes());
}

Tensor Tensor::diagonal(std::int64_t offset, Dim dim1, Dim dim2) const {
  detail::check_defined("diagonal", "self", *this);
  const int row = detail::wrap_dim("diagonal", dim1, *this);
  const int column = detail::wrap_dim("diagonal", dim2, *this);
  if (row == column) {
    throw ShapeError(fmt::format("diagonal: diagonal dimensions cannot be identical {}, {}",
                                 static_cast<int>(dim1), static_cast<int>(dim2)),
                     device().str());
  }
  const std::int64_t rows = sizes()[row];
  const std::int64_t columns = sizes()[column];
  const std::int64_t skipped_rows = offset < 0 ? std::min(-std::max(offset, -rows), rows) : 0;
  const std::int64_t skipped_columns = offset > 0 ? std::min(offset, columns) : 0;
  const std::int64_t length = std::min(rows - skipped_rows, columns - skipped_columns);
  const std::int64_t start =
      length == 0 ? 0 : skipped_rows * strides()[row] + skipped_columns * strides()[column];
  Shape new_sizes = sizes();
  Dims new_strides = strides();
  new_sizes.erase(std::max(row, column));
  new_sizes.erase(std::min(row, column));
  new_strides.erase(std::max(row, column));
  new_strides.erase(std::min(row, column));
  new_sizes.push_back(length);
  new_strides.push_back(strides()[row] + strides()[column]);
  return restride(new_sizes, new_strides, storage_offset() + start);
}

Tensor Tensor::unfold(Dim dim, std::int64_t size, std::int64_t step) const {
  detail::check_defined("unfold", "self", *this);
  const int at = detail::wrap_dim("unfold", dim, *this);
  const std::int64_t length = this->dim() == 0 ? 1 : sizes()[at];
  if (size < 0)
    throw ShapeError(fmt::format("unfold: size is {} but must be >= 0", size), device().str());
  if (size > length) {
    throw ShapeError(
        fmt::format("unfold: maximum size for tensor at dimension {} is {} but size is {}", at,
                    length, size),
        device().str());
  }
  if (step <= 0)
    throw ShapeError(fmt::format("unfold: step is {} but must be > 0", step), device().str());
  if (this->dim() == 0) return restride({size}, {1}, storage_offset());
  Shape new_sizes = sizes();
  Dims new_strides = strides();
  new_sizes[at] = (length - size) / step + 1;
  // A single window does not use the stride, and step * stride might overflow.
  new_strides[at] = new_sizes[at] == 1 ? strides()[at] : step * strides()[at];
  new_sizes.push_back(size);
  new_strides.push_back(strides()[at]);
  return restride(new_sizes, new_strides, storage_offset());
}

}  // namespace gantry
