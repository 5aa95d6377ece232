#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <gantry/core/dim.hpp>
#include <gantry/core/export.hpp>
#include <gantry/tensor/index.hpp>
#include <gantry/tensor/operand.hpp>
#include <gantry/tensor/tensor.hpp>

/// Gathers, scatters and masks: reads and writes at positions that tensors hold.
///
/// A function `op` with an in-place member `op_` applies that member to a copy of self.
///
/// DTypes: indices are i32 or i64. Masks are bool. self and source have one dtype.
/// Device/stream: current stream of the tensor's device. The host waits only for the number of
/// elements that a mask selects. It does so in nonzero, argwhere, where(condition), masked_select,
/// masked_scatter, and index with a mask. All tensors are on one device.
/// Aliasing: a written tensor overlaps neither itself nor other arguments.
/// Throws: IndexError for an index out of range. On the CPU the call itself throws it, otherwise
/// the device's next synchronizing call or query. The element is then 0 (reads) or unchanged
/// (writes). Negative indices are out of range, except where a function says that they count from
/// the end.
///
/// Duplicate indices: writes to one element are in the order of the source's elements, on every
/// platform. The last one wins, and sums have the same bits everywhere.
/// @since 0.1
namespace gantry {

/// out[.., k, ..] = self[.., index[k], ..] along `dim`. Shapes: index is 1-D.
[[nodiscard]] GANTRY_API Tensor index_select(const Tensor& self, Dim dim, const Tensor& index);
GANTRY_API Tensor& index_select_out(Tensor& out, const Tensor& self, Dim dim, const Tensor& index);
/// out[i][j] = self[index[i][j]][j] for dim 0; other dims likewise. Shapes: index has as many dims
/// as self and is no larger except along `dim`. The result has index's shape.
[[nodiscard]] GANTRY_API Tensor gather(const Tensor& self, Dim dim, const Tensor& index);
GANTRY_API Tensor& gather_out(Tensor& out, const Tensor& self, Dim dim, const Tensor& index);
/// The elements of the flattened self at `index`, in index's shape. Negative indices count from the
/// end.
[[nodiscard]] GANTRY_API Tensor take(const Tensor& self, const Tensor& index);
GANTRY_API Tensor& take_out(Tensor& out, const Tensor& self, const Tensor& index);
/// As gather, but self and `indices` are broadcast to each other except along `dim`. Without `dim`,
/// both are flattened. Negative indices count from the end.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor take_along_dim(const Tensor& self, const Tensor& indices,
                                               std::optional<Dim> dim = {});
GANTRY_API Tensor& take_along_dim_out(Tensor& out, const Tensor& self, const Tensor& indices,
                                      std::optional<Dim> dim = {});
/// Writes source to the flattened self at `index`; `accumulate` adds it. Negative indices count
/// from the end. Shapes: index and source have equally many elements.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor put(const Tensor& self, const Tensor& index, const Tensor& source,
                                    bool accumulate = false);

/// self.index(indices), which Index describes.
[[nodiscard]] GANTRY_API Tensor index(const Tensor& self, std::initializer_list<Index> indices);
/// index_put_ on a copy of self.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor index_put(const Tensor& self, std::initializer_list<Index> indices,
                                          const Operand& value, bool accumulate = false);
[[nodiscard]] GANTRY_API Tensor index_put(const Tensor& self, std::span<const Index> indices,
                                          const Operand& value, bool accumulate = false);

/// out[index[i][j]][j] = source[i][j] for dim 0; other dims likewise. With `reduce`, "add" or
/// "multiply", the element is combined with that of source. Shapes: index has as many dims as self
/// and source. It is no larger than source in any dim, and no larger than self except along `dim`.
[[nodiscard]] GANTRY_API Tensor scatter(const Tensor& self, Dim dim, const Tensor& index,
                                        const Operand& source);
[[nodiscard]] GANTRY_API Tensor scatter(const Tensor& self, Dim dim, const Tensor& index,
                                        const Operand& source, std::string_view reduce);
/// scatter that adds.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor scatter_add(const Tensor& self, Dim dim, const Tensor& index,
                                            const Tensor& source);
/// scatter that combines with "sum", "prod", "mean", "amax" or "amin". Without `include_self`, the
/// old value of a written element does not take part. A mean of integers is rounded down.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor scatter_reduce(const Tensor& self, Dim dim, const Tensor& index,
                                               const Tensor& source, std::string_view reduce,
                                               bool include_self = true);

/// out[.., index[k], ..] += alpha * source[.., k, ..] along `dim`. Shapes: index is 1-D; source has
/// self's shape, but as many slices as index has elements.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor index_add(const Tensor& self, Dim dim, const Tensor& index,
                                          const Tensor& source, const Scalar& alpha = 1);
/// out[.., index[k], ..] = source[.., k, ..] along `dim`. Shapes: as in index_add.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor index_copy(const Tensor& self, Dim dim, const Tensor& index,
                                           const Tensor& source);
/// out[.., index[k], ..] = value along `dim`. Negative indices count from the end. Shapes: index is
/// 1-D, value a number or 0-dim.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor index_fill(const Tensor& self, Dim dim, const Tensor& index,
                                           const Operand& value);
/// index_add that combines with "prod", "mean", "amax" or "amin", as scatter_reduce does.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor index_reduce(const Tensor& self, Dim dim, const Tensor& index,
                                             const Tensor& source, std::string_view reduce,
                                             bool include_self = true);

/// The coordinates of the elements that are not zero, in row-major order: i64 [n, self.dim()]. Each
/// column is contiguous.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor nonzero(const Tensor& self);
GANTRY_API Tensor& nonzero_out(Tensor& out, const Tensor& self);
/// nonzero(self).
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor argwhere(const Tensor& self);
/// The columns of nonzero, one per dim: an index list that selects the same elements. A 0-dim
/// tensor counts as 1-D.
/// @since 0.3
[[nodiscard]] GANTRY_API std::vector<Tensor> nonzero_numpy(const Tensor& self);
/// nonzero_numpy(condition).
[[nodiscard]] GANTRY_API std::vector<Tensor> where(const Tensor& condition);
/// The elements of self that mask selects, in row-major order, as a 1-D tensor. Shapes: self and
/// mask are broadcast.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor masked_select(const Tensor& self, const Tensor& mask);
GANTRY_API Tensor& masked_select_out(Tensor& out, const Tensor& self, const Tensor& mask);
/// Writes the first elements of source, in row-major order, to the elements of self that mask
/// selects. Shapes: mask broadcasts to self; source has at least as many elements as mask selects.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor masked_scatter(const Tensor& self, const Tensor& mask,
                                               const Tensor& source);

}  // namespace gantry
