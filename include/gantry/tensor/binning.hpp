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
namespace gantry {

/// The index at which each of `values` belongs in a sorted sequence, so that it stays sorted:
/// before equal elements, or with `right` behind them. `side` is another name of that: "left" or
/// "right".
///
/// Shapes: those of `values`. `sorted_sequence` is 1-D, or has the dims of `values` except the last
/// one, and then each row has its own sequence. A number needs a 1-D sequence.
/// DTypes: i64, or i32 with `out_int32`; values are compared in the promoted dtype.
/// `sorter`: the indices (i64) that sort `sorted_sequence`, which is then in any order: the result
/// of argsort. An index out of range is an IndexError, as in gather.
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
/// How often each of 0, 1, … occurs in a 1-D tensor of non-negative integers. With `weights` of the
/// same shape: the sum of the weights of each, added in the order of their positions. Shapes: 1-D;
/// the largest element plus 1, at least `minlength`. DTypes: i64; f32 for f32 weights; f64 for
/// others. Device/stream: the host blocks.
[[nodiscard]] GANTRY_API Tensor bincount(const Tensor& self,
                                         const std::optional<Tensor>& weights = {},
                                         std::int64_t minlength = 0);
/// The number of elements in each of `bins` parts of [min, max], of one width. The last part
/// includes `max`. Elements outside and NaN are not counted. If min equals max, the range is that
/// of the elements; if these are equal, it is extended by 1 on both sides.
///
/// DTypes: floating, whose counts have the input's dtype; integers, whose counts are i64 and whose
/// parts are exact.
/// Throws: InvalidArgument for a range that is not finite, and for integers with a limit that is no
/// whole number.
[[nodiscard]] GANTRY_API Tensor histc(const Tensor& self, std::int64_t bins = 100,
                                      const Scalar& min = 0, const Scalar& max = 0);
GANTRY_API Tensor& histc_out(Tensor& out, const Tensor& self, std::int64_t bins = 100,
                             const Scalar& min = 0, const Scalar& max = 0);

}  // namespace gantry
