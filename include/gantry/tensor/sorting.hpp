#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <gantry/core/dim.hpp>
#include <gantry/core/export.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/results.hpp>
#include <gantry/tensor/tensor.hpp>

/// Sorting, selection and sets.
///
/// Order: NaN is larger than every number, and all NaNs are equal. -0 equals 0. False is smaller
/// than true. Equal elements keep the order of their positions, also in a descending order. The
/// results have the same bits on the CPU, on simulated devices and on every GPU.
/// Shapes: a 0-dim tensor has dim 0, of size 1. Selections along `dim` remove that dim, or with
/// `keepdim` give it size 1.
/// DTypes: all. Values have the input's dtype, indices are i64.
/// Device/stream: current stream of the tensor's device. The host blocks in unique and
/// unique_consecutive only, because their shapes depend on the elements.
/// Aliasing: the results are new memory. `op_out(out, …)` writes to `out`, which has the result's
/// shape, dtype and device, in any layout. It may not overlap the input or another output.
/// Throws: IndexError for a dim out of range, ShapeError, DTypeError, DeviceMismatchError,
/// InvalidArgument. NotSupported for more than 2^32 - 1 elements along `dim` on a GPU. After an
/// exception nothing has changed.
/// @since 0.3
namespace gantry {

/// The elements in ascending (or descending) order along `dim`, and their indices. Shapes: the
/// input's. The sort is always stable; `stable` has no effect.
/// Example: `const auto [values, indices] = sort(tensor({3, 1, 2}));`
[[nodiscard]] GANTRY_API ValuesAndIndices sort(const Tensor& self, Dim dim = -1,
                                               bool descending = false, bool stable = false);
GANTRY_API std::tuple<Tensor&, Tensor&> sort_out(Tensor& values, Tensor& indices,
                                                 const Tensor& self, Dim dim = -1,
                                                 bool descending = false, bool stable = false);
/// The indices of sort.
[[nodiscard]] GANTRY_API Tensor argsort(const Tensor& self, Dim dim = -1, bool descending = false,
                                        bool stable = false);
GANTRY_API Tensor& argsort_out(Tensor& out, const Tensor& self, Dim dim = -1,
                               bool descending = false, bool stable = false);
/// The values of sort along dim 0.
[[nodiscard]] GANTRY_API Tensor msort(const Tensor& self);
GANTRY_API Tensor& msort_out(Tensor& out, const Tensor& self);
/// The `k` largest (or smallest) elements along `dim`, and their indices. They are always sorted,
/// the largest (or smallest) first; `sorted` has no effect. Shapes: `dim` has size k. Throws:
/// IndexError unless 0 <= k <= size(dim).
/// Example: `const auto [values, indices] = topk(tensor({3, 1, 2}), 2);`
[[nodiscard]] GANTRY_API ValuesAndIndices topk(const Tensor& self, std::int64_t k, Dim dim = -1,
                                               bool largest = true, bool sorted = true);
GANTRY_API std::tuple<Tensor&, Tensor&> topk_out(Tensor& values, Tensor& indices,
                                                 const Tensor& self, std::int64_t k, Dim dim = -1,
                                                 bool largest = true, bool sorted = true);
/// Element k - 1 of the ascending order along `dim`, and its index. Throws: IndexError unless
/// 1 <= k <= size(dim).
[[nodiscard]] GANTRY_API ValuesAndIndices kthvalue(const Tensor& self, std::int64_t k, Dim dim = -1,
                                                   bool keepdim = false);
GANTRY_API std::tuple<Tensor&, Tensor&> kthvalue_out(Tensor& values, Tensor& indices,
                                                     const Tensor& self, std::int64_t k,
                                                     Dim dim = -1, bool keepdim = false);
/// The median of all elements; for an even number of elements, the lower of the two middle ones.
/// NaN if an element is NaN, or if there are no elements. Throws: ShapeError for an empty tensor of
/// integers.
[[nodiscard]] GANTRY_API Tensor median(const Tensor& self);
/// The medians along `dim` and their indices. If the median is NaN, its index is that of the first
/// NaN. Throws: ShapeError if `dim` is empty.
[[nodiscard]] GANTRY_API ValuesAndIndices median(const Tensor& self, Dim dim, bool keepdim = false);
GANTRY_API std::tuple<Tensor&, Tensor&> median_out(Tensor& values, Tensor& indices,
                                                   const Tensor& self, Dim dim,
                                                   bool keepdim = false);
/// The median of the elements that are not NaN. NaN if there are none.
[[nodiscard]] GANTRY_API Tensor nanmedian(const Tensor& self);
[[nodiscard]] GANTRY_API ValuesAndIndices nanmedian(const Tensor& self, Dim dim,
                                                    bool keepdim = false);
GANTRY_API std::tuple<Tensor&, Tensor&> nanmedian_out(Tensor& values, Tensor& indices,
                                                      const Tensor& self, Dim dim,
                                                      bool keepdim = false);
/// The most frequent element along `dim` and its last index. Of equally frequent elements it is the
/// smallest. A NaN equals no other element, so it counts as an element that occurs once. Throws:
/// ShapeError if `dim` is empty.
[[nodiscard]] GANTRY_API ValuesAndIndices mode(const Tensor& self, Dim dim = -1,
                                               bool keepdim = false);
GANTRY_API std::tuple<Tensor&, Tensor&> mode_out(Tensor& values, Tensor& indices,
                                                 const Tensor& self, Dim dim = -1,
                                                 bool keepdim = false);

/// The distinct elements, always in ascending order; `sorted` has no effect. A NaN equals no other
/// element, so every NaN is kept.
///
/// With `dim`: the distinct slices along it, in lexicographic order. `values` then holds these
/// slices, and `inverse` one index per slice. For slices of m elements the cost is about log2(m)
/// sorts of the tensor, and 8 bytes of temporary memory per element.
/// Device/stream: the host blocks.
/// Throws: IndexError for `dim`; ShapeError if another dim is empty; NotSupported for more than
/// 3,037,000,499 slices.
[[nodiscard]] GANTRY_API UniqueElements unique(const Tensor& self, bool sorted = true,
                                               bool return_inverse = false,
                                               bool return_counts = false,
                                               std::optional<Dim> dim = {});
/// The first element of each run of equal elements in the flattened tensor. With `dim`, the first
/// of each run of equal slices. Device/stream: the host blocks. Throws: as unique.
[[nodiscard]] GANTRY_API UniqueElements unique_consecutive(const Tensor& self,
                                                           bool return_inverse = false,
                                                           bool return_counts = false,
                                                           std::optional<Dim> dim = {});
/// True where an element of `elements` is in `test_elements`; with `invert`, where it is not. One
/// of the two may be a number. NaN equals no element. `assume_unique` has no effect. Shapes: the
/// result has that of `elements`; `test_elements` has any. DTypes: the result is bool; elements are
/// compared in the promoted dtype.
[[nodiscard]] GANTRY_API Tensor isin(const Operand& elements, const Operand& test_elements,
                                     bool assume_unique = false, bool invert = false);
GANTRY_API Tensor& isin_out(Tensor& out, const Operand& elements, const Operand& test_elements,
                            bool assume_unique = false, bool invert = false);

}  // namespace gantry
