#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <ranges>
#include <vector>

#include <gantry/tensor/tensor.hpp>

/// Joining, splitting, reshaping and broadcasting.
///
/// Device/stream: current stream of the tensors' device; the host does not block. All tensors of
/// one call live on one device.
namespace gantry {

/// An array, a span or another list of tensors in a row, where a vector of them is taken.
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

/// Joins along an existing dim. Shapes: equal but for `dim`; 1-D tensors of size 0 are skipped.
/// DTypes: promoted. Throws: InvalidArgument for an empty list, ShapeError, DeviceMismatchError.
[[nodiscard]] Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
template <TensorRange R>
[[nodiscard]] Tensor cat(const R& tensors, int dim = 0) {
  return cat(detail::listed(tensors), dim);
}
/// Joins along a new dim. Shapes: all equal.
[[nodiscard]] Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);
template <TensorRange R>
[[nodiscard]] Tensor stack(const R& tensors, int dim = 0) {
  return stack(detail::listed(tensors), dim);
}
/// cat along dim 1, of 1-D tensors along dim 0.
[[nodiscard]] Tensor hstack(const std::vector<Tensor>& tensors);
template <TensorRange R>
[[nodiscard]] Tensor hstack(const R& tensors) {
  return hstack(detail::listed(tensors));
}
/// cat along dim 0; 0-dim and 1-D tensors become rows.
[[nodiscard]] Tensor vstack(const std::vector<Tensor>& tensors);
template <TensorRange R>
[[nodiscard]] Tensor vstack(const R& tensors) {
  return vstack(detail::listed(tensors));
}
/// As Tensor::split.
[[nodiscard]] std::vector<Tensor> split(const Tensor& self, std::int64_t size, int dim = 0);
[[nodiscard]] std::vector<Tensor> split(const Tensor& self, const std::vector<std::int64_t>& sizes,
                                        int dim = 0);
/// As Tensor::chunk.
[[nodiscard]] std::vector<Tensor> chunk(const Tensor& self, int chunks, int dim = 0);
/// As Tensor::tensor_split.
template <std::integral T>
[[nodiscard]] std::vector<Tensor> tensor_split(const Tensor& self, T sections, int dim = 0) {
  return self.tensor_split(sections, dim);
}
[[nodiscard]] inline std::vector<Tensor> tensor_split(const Tensor& self,
                                                      const std::vector<std::int64_t>& indices,
                                                      int dim = 0) {
  return self.tensor_split(indices, dim);
}
/// As Tensor::unbind.
[[nodiscard]] inline std::vector<Tensor> unbind(const Tensor& self, int dim = 0) {
  return self.unbind(dim);
}
/// As Tensor::transpose.
[[nodiscard]] inline Tensor transpose(const Tensor& self, int dim0, int dim1) {
  return self.transpose(dim0, dim1);
}
/// As Tensor::flatten.
[[nodiscard]] inline Tensor flatten(const Tensor& self, int start_dim = 0, int end_dim = -1) {
  return self.flatten(start_dim, end_dim);
}
/// Each element `repeats` times in a row, along `dim` or in the flat tensor.
[[nodiscard]] Tensor repeat_interleave(const Tensor& self, std::int64_t repeats,
                                       std::optional<int> dim = {});
/// Views of all tensors in their common shape.
[[nodiscard]] std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors);
/// The shape that both broadcast to. Throws: ShapeError.
[[nodiscard]] Shape broadcast_shapes(const Shape& a, const Shape& b);

}  // namespace gantry
