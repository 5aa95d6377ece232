#pragma once

#include <string_view>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/tensor/shape_ops.hpp>
#include <gantry/tensor/tensor.hpp>

/// Joins, rotations and grids beyond those of shape_ops.hpp.
///
/// Device/stream: current stream of the tensors' device; the host does not block. All tensors of
/// one call are on one device.
/// @since 0.3
namespace gantry {

/// A view with at least one dim.
[[nodiscard]] GANTRY_API Tensor atleast_1d(const Tensor& self);
/// A view with at least two dims. Shapes: [] → [1, 1]; [n] → [1, n].
[[nodiscard]] GANTRY_API Tensor atleast_2d(const Tensor& self);
/// A view with at least three dims. Shapes: [] → [1, 1, 1]; [n] → [1, n, 1]; [m, n] → [m, n, 1].
[[nodiscard]] GANTRY_API Tensor atleast_3d(const Tensor& self);

/// cat along dim 2 of the tensors' atleast_3d.
[[nodiscard]] GANTRY_API Tensor dstack(const std::vector<Tensor>& tensors);
template <TensorRange R>
[[nodiscard]] Tensor dstack(const R& tensors) {
  return dstack(detail::listed(tensors));
}
/// cat along dim 1. A 0-dim or 1-D tensor becomes a column.
[[nodiscard]] GANTRY_API Tensor column_stack(const std::vector<Tensor>& tensors);
template <TensorRange R>
[[nodiscard]] Tensor column_stack(const R& tensors) {
  return column_stack(detail::listed(tensors));
}
/// The matrix with the tensors as blocks on its diagonal, and 0 elsewhere. Shapes: tensors have up
/// to 2 dims; a vector is a row. DTypes: promoted. Throws: InvalidArgument for an empty list,
/// ShapeError, DeviceMismatchError.
[[nodiscard]] GANTRY_API Tensor block_diag(const std::vector<Tensor>& tensors);
template <TensorRange R>
[[nodiscard]] Tensor block_diag(const R& tensors) {
  return block_diag(detail::listed(tensors));
}

/// The coordinates of a grid: result i is tensor i, expanded along all other dims. Aliasing: the
/// results are views.
///
/// Shapes: 0-dim tensors and vectors of sizes n0, n1, … → one tensor [n0, n1, …] each. With the
/// indexing "xy" the first two dims are exchanged. DTypes: one for all. Throws: InvalidArgument for
/// an empty list or another indexing, ShapeError, DTypeError, DeviceMismatchError.
[[nodiscard]] GANTRY_API std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors,
                                                      std::string_view indexing = "ij");

/// A copy, rotated by k * 90 degrees from the first to the second dim. Throws: InvalidArgument
/// unless `dims` are two different dims, ShapeError for less than two dims, IndexError.
[[nodiscard]] GANTRY_API Tensor rot90(const Tensor& self, std::int64_t k = 1,
                                      const Axes& dims = {0, 1});
/// flip along dim 1. Throws: ShapeError for less than two dims.
[[nodiscard]] GANTRY_API Tensor fliplr(const Tensor& self);
/// flip along dim 0. Throws: ShapeError for a 0-dim tensor.
[[nodiscard]] GANTRY_API Tensor flipud(const Tensor& self);

}  // namespace gantry
