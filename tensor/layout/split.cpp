#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tensor/check.hpp"
#include "tensor/impl/stride_algebra.hpp"

// Views of parts of a tensor.
namespace gantry {

namespace {

int sliceable_dim(std::string_view op, const Tensor& self, int dim) {
  detail::check_defined(op, "self", self);
  if (self.dim() == 0) {
    throw IndexError(fmt::format("{}: cannot be applied to a 0-dim tensor", op),
                     self.device().str());
  }
  return detail::wrap_dim(op, dim, self);
}

}  // namespace

Tensor Tensor::slice(Dim dim, std::optional<std::int64_t> start, std::optional<std::int64_t> end,
                     std::int64_t step) const {
  const int at = sliceable_dim("slice", *this, dim);
  if (step == 0) throw IndexError("slice: slice step cannot be zero", device().str());
  if (step < 0) {
    throw IndexError(fmt::format("slice: step must be greater than zero, but got {}", step),
                     device().str());
  }
  const std::int64_t size = sizes()[at];
  const auto clamped = [size](std::int64_t bound) {
    return std::clamp<std::int64_t>(bound < 0 ? bound + size : bound, 0, size);
  };
  const std::int64_t first = clamped(start.value_or(0));
  const std::int64_t last = std::max(clamped(end.value_or(size)), first);
  Shape new_sizes = sizes();
  Dims new_strides = strides();
  const std::int64_t length = last - first;
  new_sizes[at] = length / step + (length % step != 0 ? 1 : 0);
  new_strides[at] = new_sizes[at] <= 1 ? strides()[at] : strides()[at] * step;
  return restride(new_sizes, new_strides, storage_offset() + first * strides()[at]);
}

Tensor Tensor::narrow(Dim dim, std::int64_t start, std::int64_t length) const {
  const int at = sliceable_dim("narrow", *this, dim);
  const std::int64_t size = sizes()[at];
  if (length < 0) {
    throw ShapeError(fmt::format("narrow: length must be non-negative, but got {}", length),
                     device().str());
  }
  if (start < -size || start > size) {
    throw IndexError(
        fmt::format("narrow: start out of range (expected to be in range of [{}, {}], but got {})",
                    -size, size, start),
        device().str());
  }
  const std::int64_t first = start < 0 ? start + size : start;
  if (length > size - first) {
    throw ShapeError(fmt::format("narrow: start ({}) + length ({}) exceeds dimension size ({}).",
                                 first, length, size),
                     device().str());
  }
  Shape new_sizes = sizes();
  new_sizes[at] = length;
  return restride(new_sizes, strides(), storage_offset() + first * strides()[at]);
}

Tensor Tensor::select(Dim dim, std::int64_t index) const {
  const int at = sliceable_dim("select", *this, dim);
  const std::int64_t size = sizes()[at];
  if (index < -size || index >= size) {
    throw IndexError(fmt::format("select: index {} is out of bounds for dimension {} with size {}",
                                 index, at, size),
                     device().str());
  }
  Shape new_sizes = sizes();
  Dims new_strides = strides();
  new_sizes.erase(at);
  new_strides.erase(at);
  const std::int64_t position = index < 0 ? index + size : index;
  return restride(new_sizes, new_strides, storage_offset() + position * strides()[at]);
}

std::vector<Tensor> Tensor::split(std::int64_t size, Dim dim) const {
  const int at = sliceable_dim("split", *this, dim);
  const std::int64_t length = sizes()[at];
  if (size < 0) {
    throw ShapeError(
        fmt::format("split: split expects split_size be non-negative, but got split_size={}", size),
        device().str());
  }
  if (size == 0 && length != 0) {
    throw ShapeError(
        fmt::format(
            "split: split_size can only be 0 if dimension size is 0, but got dimension size of {}",
            length),
        device().str());
  }
  std::vector<Tensor> pieces;
  std::int64_t start = 0;
  do {
    const std::int64_t piece = std::min(size, length - start);
    pieces.push_back(narrow(at, start, piece));
    start += piece;
  } while (start < length);
  return pieces;
}

std::vector<Tensor> Tensor::split(const std::vector<std::int64_t>& sizes, Dim dim) const {
  const int at = sliceable_dim("split", *this, dim);
  const std::int64_t length = this->sizes()[at];
  std::int64_t sum = 0;
  bool valid = true;
  for (const std::int64_t size : sizes) {
    valid = valid && size >= 0 && size <= length - sum;
    if (valid) sum += size;
  }
  if (!valid || sum != length) {
    throw ShapeError(
        fmt::format(
            "split: split_with_sizes expects split_sizes have only non-negative entries that sum "
            "exactly to {} (input tensor's size at dimension {}), but got split_sizes=[{}]",
            length, at, fmt::join(sizes, ", ")),
        device().str());
  }
  std::vector<Tensor> pieces;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    pieces.push_back(narrow(at, start, size));
    start += size;
  }
  return pieces;
}

std::vector<Tensor> Tensor::chunk(int chunks, Dim dim) const {
  const int at = sliceable_dim("chunk", *this, dim);
  if (chunks <= 0) {
    throw InvalidArgument(
        fmt::format("chunk: chunk expects `chunks` to be greater than 0, got: {}", chunks),
        device().str());
  }
  const std::int64_t length = sizes()[at];
  if (length == 0) {
    return split(std::vector<std::int64_t>(static_cast<std::size_t>(chunks), 0), at);
  }
  return split((length - 1) / chunks + 1, at);
}

std::vector<Tensor> Tensor::unbind(Dim dim) const {
  const int at = sliceable_dim("unbind", *this, dim);
  std::vector<Tensor> pieces;
  for (std::int64_t i = 0; i < sizes()[at]; ++i) pieces.push_back(select(at, i));
  return pieces;
}

std::vector<Tensor> Tensor::split_sections(std::int64_t sections, Dim dim) const {
  const int at = sliceable_dim("tensor_split", *this, dim);
  if (sections <= 0) {
    throw InvalidArgument(
        fmt::format("tensor_split: number of sections must be larger than 0, got {}", sections),
        device().str());
  }
  const std::int64_t length = size(at);
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < sections; ++i) {
    sizes.push_back(length / sections + (i < length % sections ? 1 : 0));
  }
  return split(sizes, at);
}

std::vector<Tensor> Tensor::tensor_split(const std::vector<std::int64_t>& indices, Dim dim) const {
  const int at = sliceable_dim("tensor_split", *this, dim);
  std::vector<Tensor> pieces;
  std::int64_t start = 0;
  for (const std::int64_t end : indices) {
    pieces.push_back(slice(at, start, end));
    start = end;
  }
  pieces.push_back(slice(at, start));
  return pieces;
}

std::vector<Tensor> split(const Tensor& self, std::int64_t size, Dim dim) {
  return self.split(size, dim);
}

std::vector<Tensor> split(const Tensor& self, const std::vector<std::int64_t>& sizes, Dim dim) {
  return self.split(sizes, dim);
}

std::vector<Tensor> chunk(const Tensor& self, int chunks, Dim dim) {
  return self.chunk(chunks, dim);
}

}  // namespace gantry
