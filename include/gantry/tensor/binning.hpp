#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

/// Searches in sorted sequences, and counts of elements.
///
/// Order: that of sorting.hpp; NaN is larger than every number.
/// Device/stream: current stream of the tensors' device. The host blocks in bincount, because its
/// shape depends on the elements, and in histc without a range.
/// Aliasing: the results are new memory. `op_out(out, …)` writes to `out`, which has the result's
/// shape, dtype and device, in any layout.
/// Throws: ShapeError, DTypeError, DeviceMismatchError, InvalidArgument. After an exception nothing
/// has changed.
/// @since 0.3
namespace gantry {

/// The index at which each of `values` can be inserted into a sorted sequence so that it stays
/// sorted. The index is before equal elements, or with `right` after them. `side`, "left" or
/// "right", is another way to say so.
///
/// Shapes: the result has that of `values`. `sorted_sequence` is 1-D, or equals `values` in all
/// dims but the last; then each row of `values` has its own sequence. If `values` is a number, the
/// sequence is 1-D.
/// DTypes: the result is i64, or i32 with `out_int32`. Values are compared in the promoted dtype.
/// `sorter`: the indices (i64) that sort `sorted_sequence`, as from argsort. `sorted_sequence` may
/// then be in any order. An index out of range is an IndexError, as in gather.
[[nodiscard]] GANTRY_API Tensor searchsorted(const Tensor& sorted_sequence, const Operand& values,
                                             bool out_int32 = false, bool right = false,
                                             std::optional<std::string_view> side = {},
                                             const std::optional<Tensor>& sorter = {});
GANTRY_API Tensor& searchsorted_out(Tensor& out, const Tensor& sorted_sequence,
                                    const Operand& values, bool out_int32 = false,
                                    bool right = false, std::optional<std::string_view> side = {},
                                    const std::optional<Tensor>& sorter = {});
/// searchsorted(boundaries, values, out_int32, right). Shapes: `boundaries` is 1-D.
[[nodiscard]] GANTRY_API Tensor bucketize(const Operand& values, const Tensor& boundaries,
                                          bool out_int32 = false, bool right = false);
GANTRY_API Tensor& bucketize_out(Tensor& out, const Operand& values, const Tensor& boundaries,
                                 bool out_int32 = false, bool right = false);
/// The number of occurrences of 0, 1, … in a 1-D tensor of non-negative integers. With `weights` of
/// the same shape: the sum of the weights of each number, added in the order of their positions.
/// Shapes: [n] → [max(largest element + 1, minlength)]. DTypes: the result is i64; with weights it
/// is f32 for f32 weights, else f64. Device/stream: the host blocks.
[[nodiscard]] GANTRY_API Tensor bincount(const Tensor& self,
                                         const std::optional<Tensor>& weights = {},
                                         std::int64_t minlength = 0);
/// The number of elements in each of `bins` bins of equal width, which divide [min, max]. The last
/// bin includes `max`. Elements outside the range and NaN are not counted. If min equals max, the
/// elements set the range. If all elements are equal, it is extended by 1 on both sides, or
/// to the neighbouring numbers where 1 is below their distance. The range may be all of the dtype.
///
/// Shapes: any → [bins].
/// DTypes: counts of floating inputs have the input's dtype. Counts of integers are i64, and their
/// bins have exact limits.
/// Throws: InvalidArgument for a range that is not finite in the dtype (f32 for 16-bit floats), and
/// for an integer input with a fractional limit.
[[nodiscard]] GANTRY_API Tensor histc(const Tensor& self, std::int64_t bins = 100,
                                      const Scalar& min = 0, const Scalar& max = 0);
GANTRY_API Tensor& histc_out(Tensor& out, const Tensor& self, std::int64_t bins = 100,
                             const Scalar& min = 0, const Scalar& max = 0);

}  // namespace gantry
