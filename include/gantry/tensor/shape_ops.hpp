#pragma once

#include <span>
#include <vector>

#include <gantry/tensor/tensor.hpp>

/// Joining, splitting and broadcasting.
///
/// Device/stream: current stream of the tensors' device; the host does not block. All tensors of
/// one call live on one device.
namespace gantry {

/// Joins along an existing dim. Shapes: equal but for `dim`; 1-D tensors of size 0 are skipped.
/// DTypes: promoted. Throws: InvalidArgument for an empty list, ShapeError, DeviceMismatchError.
[[nodiscard]] Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
/// Joins along a new dim. Shapes: all equal.
[[nodiscard]] Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);
/// cat along dim 1, of 1-D tensors along dim 0.
[[nodiscard]] Tensor hstack(const std::vector<Tensor>& tensors);
/// cat along dim 0; 0-dim and 1-D tensors become rows.
[[nodiscard]] Tensor vstack(const std::vector<Tensor>& tensors);
/// As Tensor::split.
[[nodiscard]] std::vector<Tensor> split(const Tensor& self, std::int64_t size, int dim = 0);
[[nodiscard]] std::vector<Tensor> split(const Tensor& self, const std::vector<std::int64_t>& sizes,
                                        int dim = 0);
/// As Tensor::chunk.
[[nodiscard]] std::vector<Tensor> chunk(const Tensor& self, int chunks, int dim = 0);
/// Exactly `sections` pieces; the first size % sections of them are one longer.
[[nodiscard]] std::vector<Tensor> tensor_split(const Tensor& self, int sections, int dim = 0);
/// Each element `repeats` times in a row, along `dim` or in the flat tensor.
[[nodiscard]] Tensor repeat_interleave(const Tensor& self, std::int64_t repeats,
                                       std::optional<int> dim = {});
/// Views of all tensors in their common shape.
[[nodiscard]] std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors);
/// The shape that both broadcast to. Throws: ShapeError.
[[nodiscard]] Shape broadcast_shapes(const Shape& a, const Shape& b);

}  // namespace gantry
