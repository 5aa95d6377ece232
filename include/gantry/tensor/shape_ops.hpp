#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <ranges>
#include <vector>

#include <gantry/core/dim.hpp>
#include <gantry/core/export.hpp>
#include <gantry/tensor/axes.hpp>
#include <gantry/tensor/tensor.hpp>

/// Joins, splits, reshapes and broadcasts.
///
/// Device/stream: current stream of the tensors' device; the host does not block. All tensors of
/// one call are on one device.
/// @since 0.1
namespace gantry {

/// An array, a span or another contiguous range of tensors, in place of a vector.
/// @since 0.1
template <class R>
concept TensorRange = std::ranges::contiguous_range<const R> &&
    std::same_as<std::ranges::range_value_t<const R>, Tensor> &&
    !std::same_as<R, std::vector<Tensor>>;

namespace detail {
template <TensorRange R>
[[nodiscard]] std::vector<Tensor> listed(const R& tensors) {
  return std::vector<Tensor>(std::ranges::begin(tensors), std::ranges::end(tensors));
}
}  // namespace detail

/// Joins along an existing dim. Shapes: equal except along `dim`; 1-D tensors of size 0 are
/// skipped. DTypes: promoted. Throws: InvalidArgument for an empty list, ShapeError,
/// DeviceMismatchError.
/// Example: `const Tensor rows = cat({zeros({2, 3}), ones({1, 3})});  // [3, 3]`
[[nodiscard]] GANTRY_API Tensor cat(const std::vector<Tensor>& tensors, Dim dim = 0);
template <TensorRange R>
[[nodiscard]] Tensor cat(const R& tensors, Dim dim = 0) {
  return cat(detail::listed(tensors), dim);
}
/// Joins along a new dim. Shapes: all equal.
/// Example: `const Tensor pair = stack({zeros({3}), ones({3})});  // [2, 3]`
[[nodiscard]] GANTRY_API Tensor stack(const std::vector<Tensor>& tensors, Dim dim = 0);
template <TensorRange R>
[[nodiscard]] Tensor stack(const R& tensors, Dim dim = 0) {
  return stack(detail::listed(tensors), dim);
}
/// cat along dim 1, or along dim 0 for 1-D tensors.
[[nodiscard]] GANTRY_API Tensor hstack(const std::vector<Tensor>& tensors);
template <TensorRange R>
[[nodiscard]] Tensor hstack(const R& tensors) {
  return hstack(detail::listed(tensors));
}
/// cat along dim 0. A 0-dim or 1-D tensor becomes a row.
[[nodiscard]] GANTRY_API Tensor vstack(const std::vector<Tensor>& tensors);
template <TensorRange R>
[[nodiscard]] Tensor vstack(const R& tensors) {
  return vstack(detail::listed(tensors));
}
/// Same as Tensor::split.
[[nodiscard]] GANTRY_API std::vector<Tensor> split(const Tensor& self, std::int64_t size,
                                                   Dim dim = 0);
[[nodiscard]] GANTRY_API std::vector<Tensor> split(const Tensor& self,
                                                   const std::vector<std::int64_t>& sizes,
                                                   Dim dim = 0);
/// Same as Tensor::chunk.
[[nodiscard]] GANTRY_API std::vector<Tensor> chunk(const Tensor& self, int chunks, Dim dim = 0);
/// Same as Tensor::tensor_split.
template <std::integral T>
[[nodiscard]] std::vector<Tensor> tensor_split(const Tensor& self, T sections, Dim dim = 0) {
  return self.tensor_split(sections, dim);
}
[[nodiscard]] inline std::vector<Tensor> tensor_split(const Tensor& self,
                                                      const std::vector<std::int64_t>& indices,
                                                      Dim dim = 0) {
  return self.tensor_split(indices, dim);
}
/// Same as Tensor::unbind.
[[nodiscard]] inline std::vector<Tensor> unbind(const Tensor& self, Dim dim = 0) {
  return self.unbind(dim);
}
/// Same as Tensor::transpose.
[[nodiscard]] inline Tensor transpose(const Tensor& self, Dim dim0, Dim dim1) {
  return self.transpose(dim0, dim1);
}
/// Same as Tensor::reshape.
[[nodiscard]] inline Tensor reshape(const Tensor& self, const Shape& sizes) {
  return self.reshape(sizes);
}
/// Same as Tensor::permute.
[[nodiscard]] inline Tensor permute(const Tensor& self, const Dims& dims) {
  return self.permute(dims);
}
/// Same as Tensor::movedim.
[[nodiscard]] inline Tensor movedim(const Tensor& self, const Axes& source,
                                    const Axes& destination) {
  return self.movedim(source, destination);
}
/// Same as Tensor::narrow.
[[nodiscard]] inline Tensor narrow(const Tensor& self, Dim dim, std::int64_t start,
                                   std::int64_t length) {
  return self.narrow(dim, start, length);
}
/// Same as Tensor::select.
[[nodiscard]] inline Tensor select(const Tensor& self, Dim dim, std::int64_t index) {
  return self.select(dim, index);
}
/// Same as Tensor::squeeze.
[[nodiscard]] inline Tensor squeeze(const Tensor& self, const Axes& dims = {}) {
  return self.squeeze(dims);
}
/// Same as Tensor::unsqueeze.
[[nodiscard]] inline Tensor unsqueeze(const Tensor& self, Dim dim) { return self.unsqueeze(dim); }
/// Same as Tensor::unflatten.
[[nodiscard]] inline Tensor unflatten(const Tensor& self, Dim dim, const Shape& sizes) {
  return self.unflatten(dim, sizes);
}
/// Same as Tensor::broadcast_to.
[[nodiscard]] inline Tensor broadcast_to(const Tensor& self, const Shape& sizes) {
  return self.broadcast_to(sizes);
}
/// Same as Tensor::diagonal.
[[nodiscard]] inline Tensor diagonal(const Tensor& self, std::int64_t offset = 0, Dim dim1 = 0,
                                     Dim dim2 = 1) {
  return self.diagonal(offset, dim1, dim2);
}
/// Same as Tensor::as_strided.
[[nodiscard]] inline Tensor as_strided(const Tensor& self, const Shape& sizes, const Dims& strides,
                                       std::optional<std::int64_t> offset = {}) {
  return self.as_strided(sizes, strides, offset);
}
/// Same as Tensor::clone.
[[nodiscard]] inline Tensor clone(const Tensor& self) { return self.clone(); }
/// Same as Tensor::flip.
[[nodiscard]] inline Tensor flip(const Tensor& self, const Axes& dims) { return self.flip(dims); }
/// Same as Tensor::roll.
[[nodiscard]] inline Tensor roll(const Tensor& self, const Axes& shifts, const Axes& dims = {}) {
  return self.roll(shifts, dims);
}
/// Same as Tensor::tile.
[[nodiscard]] inline Tensor tile(const Tensor& self, const Dims& repeats) {
  return self.tile(repeats);
}
/// Same as Tensor::flatten.
[[nodiscard]] inline Tensor flatten(const Tensor& self, Dim start_dim = 0, Dim end_dim = -1) {
  return self.flatten(start_dim, end_dim);
}
/// A copy in which each element occurs `repeats` times in a row, along `dim` or in the flattened
/// tensor.
[[nodiscard]] GANTRY_API Tensor repeat_interleave(const Tensor& self, std::int64_t repeats,
                                                  std::optional<Dim> dim = {});
/// Views of all tensors, broadcast to their common shape.
[[nodiscard]] GANTRY_API std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors);
/// The common broadcast shape. Throws: ShapeError if there is none.
[[nodiscard]] GANTRY_API Shape broadcast_shapes(const Shape& a, const Shape& b);

}  // namespace gantry
