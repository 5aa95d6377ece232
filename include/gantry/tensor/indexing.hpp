#pragma once

#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

/// Gathers and scatters: reads and writes at positions that an index tensor holds.
///
/// DTypes: indices are i32 or i64. Negative indices are out of range.
/// Device/stream: current stream of the tensor's device; the host does not block. All tensors are
/// on one device.
/// Throws: IndexError for an index out of range: immediately on the CPU, otherwise from the
/// device's next synchronizing call. The element is then 0 (gather) or unchanged (scatter).
namespace gantry {

/// out[.., k, ..] = self[.., index[k], ..] along `dim`. Shapes: index is 1-D.
[[nodiscard]] GANTRY_API Tensor index_select(const Tensor& self, int dim, const Tensor& index);
/// out[i][j] = self[index[i][j]][j] for dim 0; other dims likewise. Shapes: index has as many dims
/// as self and is no larger except along `dim`. The result has index's shape.
[[nodiscard]] GANTRY_API Tensor gather(const Tensor& self, int dim, const Tensor& index);
/// scatter_ on a copy of self.
[[nodiscard]] GANTRY_API Tensor scatter(const Tensor& self, int dim, const Tensor& index,
                                        const Operand& source);

}  // namespace gantry
