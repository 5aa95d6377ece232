#pragma once

#include <gantry/tensor/tensor.hpp>

/// Reading and writing elements whose positions are in a tensor.
///
/// DTypes: indices are i32 or i64; they count from 0, negative ones are out of range.
/// Device/stream: current stream of the tensor's device; the host does not block. All tensors live
/// on one device.
/// Throws: IndexError for an index out of range: at once on the CPU, else at the device's next
/// synchronizing call; the element concerned is 0 (gather) or unchanged (scatter).
namespace gantry {

/// out[.., k, ..] = self[.., index[k], ..] along `dim`. Shapes: index is 1-D.
[[nodiscard]] Tensor index_select(const Tensor& self, int dim, const Tensor& index);
/// out[i][j] = self[index[i][j]][j] for dim 0, and so on. Shapes: index has self's number of dims
/// and, except along `dim`, no larger sizes; the result has index's.
[[nodiscard]] Tensor gather(const Tensor& self, int dim, const Tensor& index);
/// A copy of self after scatter_.
[[nodiscard]] Tensor scatter(const Tensor& self, int dim, const Tensor& index,
                             const Operand& source);

}  // namespace gantry
