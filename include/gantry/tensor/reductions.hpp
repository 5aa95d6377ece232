#pragma once

#include <concepts>
#include <optional>
#include <tuple>
#include <type_traits>

#include <gantry/core/dim.hpp>
#include <gantry/core/export.hpp>
#include <gantry/tensor/results.hpp>
#include <gantry/tensor/tensor.hpp>

/// Reductions and scans.
///
/// The order in which elements are combined depends on the reduction's length only. Sums, products
/// and extrema therefore have the same bits on the CPU, on simulated devices and on every GPU.
/// Elements are combined in blocks. A result is nevertheless infinite or NaN only where it is with
/// the elements left to right.
///
/// Shapes: `dims` (default: all) are removed, or have size 1 with `keepdim`. A 0-dim tensor is
/// reduced along dim 0 or -1.
/// Device/stream: current stream of the tensor's device; the host does not block.
/// Aliasing: the result is new memory. `op_out` of outputs.hpp writes to an output.
/// Throws: IndexError for a dim out of range, InvalidArgument for a duplicate dim.
/// @since 0.1
namespace gantry {

/// Sum. DTypes: i64 for integers and bool, else the input's. If `dtype` is given, the input is
/// converted to it first.
/// Example: `const Tensor rows = sum(ones({2, 3}, "cuda:0"), 1);  // [2]`
[[nodiscard]] GANTRY_API Tensor sum(const Tensor& self, const Axes& dims = {}, bool keepdim = false,
                                    std::optional<DType> dtype = {});
template <std::same_as<DType> T>
[[nodiscard]] Tensor sum(const Tensor& self, T dtype) {
  return sum(self, Axes(), false, dtype);
}
/// Mean, the sum over the number of elements: infinite if the sum is beyond the range of the dtype
/// (f32 for 16-bit floats). That of no elements is NaN. Throws: DTypeError for integers and bool
/// without a floating `dtype`.
[[nodiscard]] GANTRY_API Tensor mean(const Tensor& self, const Axes& dims = {},
                                     bool keepdim = false, std::optional<DType> dtype = {});
template <std::same_as<DType> T>
[[nodiscard]] Tensor mean(const Tensor& self, T dtype) {
  return mean(self, Axes(), false, dtype);
}
/// Product. Partial products below the range of the dtype (f32 for 16-bit floats) are 0. DTypes: as
/// sum.
[[nodiscard]] GANTRY_API Tensor prod(const Tensor& self, const Axes& dims = {},
                                     bool keepdim = false, std::optional<DType> dtype = {});
template <std::same_as<DType> T>
[[nodiscard]] Tensor prod(const Tensor& self, T dtype) {
  return prod(self, Axes(), false, dtype);
}
/// Largest element; NaN propagates. Throws: ShapeError for an empty reduction.
[[nodiscard]] GANTRY_API Tensor amax(const Tensor& self, const Axes& dims = {},
                                     bool keepdim = false);
/// Smallest element; NaN propagates. Throws: ShapeError for an empty reduction.
[[nodiscard]] GANTRY_API Tensor amin(const Tensor& self, const Axes& dims = {},
                                     bool keepdim = false);
/// Largest element of the tensor; NaN propagates. Throws: ShapeError for an empty tensor.
[[nodiscard]] GANTRY_API Tensor max(const Tensor& self);
GANTRY_API Tensor& max_out(Tensor& out, const Tensor& self);
/// Largest elements along `dim` and the first index of each. Throws: ShapeError if `dim` is empty.
[[nodiscard]] GANTRY_API ValuesAndIndices max(const Tensor& self, Dim dim, bool keepdim = false);
GANTRY_API std::tuple<Tensor&, Tensor&> max_out(Tensor& values, Tensor& indices, const Tensor& self,
                                                Dim dim, bool keepdim = false);
/// Smallest element of the tensor; NaN propagates. Throws: ShapeError for an empty tensor.
[[nodiscard]] GANTRY_API Tensor min(const Tensor& self);
GANTRY_API Tensor& min_out(Tensor& out, const Tensor& self);
/// Smallest elements along `dim` and the first index of each. Throws: ShapeError if `dim` is empty.
[[nodiscard]] GANTRY_API ValuesAndIndices min(const Tensor& self, Dim dim, bool keepdim = false);
GANTRY_API std::tuple<Tensor&, Tensor&> min_out(Tensor& values, Tensor& indices, const Tensor& self,
                                                Dim dim, bool keepdim = false);
/// First index (i64) of the largest element along `dim`, or in the flattened tensor.
[[nodiscard]] GANTRY_API Tensor argmax(const Tensor& self, std::optional<Dim> dim = {},
                                       bool keepdim = false);
/// First index (i64) of the smallest element along `dim`, or in the flattened tensor.
[[nodiscard]] GANTRY_API Tensor argmin(const Tensor& self, std::optional<Dim> dim = {},
                                       bool keepdim = false);
/// True if any element is non-zero; false for an empty reduction.
[[nodiscard]] GANTRY_API Tensor any(const Tensor& self, const Axes& dims = {},
                                    bool keepdim = false);
/// True if every element is non-zero; true for an empty reduction.
[[nodiscard]] GANTRY_API Tensor all(const Tensor& self, const Axes& dims = {},
                                    bool keepdim = false);
/// Number of non-zero elements, i64.
[[nodiscard]] GANTRY_API Tensor count_nonzero(const Tensor& self, const Axes& dims = {});
/// The p-norm (sum |x|^p)^(1/p); infinite if the sum is beyond the range of the dtype (f32 for
/// 16-bit floats). p = 0 counts non-zero elements; p may be ±infinity. DTypes:
/// floating.
[[nodiscard]] GANTRY_API Tensor norm(const Tensor& self, double p = 2, const Axes& dims = {},
                                     bool keepdim = false);
/// Variance: the sum of squared distances from the mean, over n - correction. It is infinite only
/// if it is itself beyond the range of the dtype. DTypes: floating.
[[nodiscard]] GANTRY_API Tensor var(const Tensor& self, const VarianceOptions& options = {});
template <class T = Axes>  // a template, so that var(t, {.correction = 0}) means options
[[nodiscard]] Tensor var(const Tensor& self, const std::type_identity_t<T>& dims,
                         double correction = 1, bool keepdim = false) {
  return var(self, VarianceOptions{.dims = dims, .correction = correction, .keepdim = keepdim});
}
/// Variance with correction 1 if `unbiased`, else 0.
template <std::same_as<bool> T>
[[nodiscard]] Tensor var(const Tensor& self, T unbiased) {
  return var(self, VarianceOptions{.correction = unbiased ? 1.0 : 0.0});
}
/// Square root of var, also where var is beyond the range.
[[nodiscard]] GANTRY_API Tensor std(const Tensor& self, const VarianceOptions& options = {});
template <class T = Axes>
[[nodiscard]] Tensor std(const Tensor& self, const std::type_identity_t<T>& dims,
                         double correction = 1, bool keepdim = false) {
  return std(self, VarianceOptions{.dims = dims, .correction = correction, .keepdim = keepdim});
}
template <std::same_as<bool> T>
[[nodiscard]] Tensor std(const Tensor& self, T unbiased) {
  return std(self, VarianceOptions{.correction = unbiased ? 1.0 : 0.0});
}
/// log(sum(exp(x))), without overflow.
[[nodiscard]] GANTRY_API Tensor logsumexp(const Tensor& self, const Axes& dims,
                                          bool keepdim = false);
/// Cumulative sum along `dim`. Shapes: the input's. DTypes: as sum.
[[nodiscard]] GANTRY_API Tensor cumsum(const Tensor& self, Dim dim,
                                       std::optional<DType> dtype = {});
/// Cumulative product along `dim`. Partial products below the range of f64 (f32 for 16-bit floats)
/// are 0. Shapes: the input's. DTypes: as sum.
[[nodiscard]] GANTRY_API Tensor cumprod(const Tensor& self, Dim dim,
                                        std::optional<DType> dtype = {});
/// exp(x) / sum(exp(x)) along `dim`. Shapes: the input's. DTypes: floating.
/// Example: `const Tensor p = softmax(ones({2, 3}, "cuda:0"), 1);`
[[nodiscard]] GANTRY_API Tensor softmax(const Tensor& self, Dim dim,
                                        std::optional<DType> dtype = {});
/// log(softmax(x)) along `dim`. Shapes: the input's. DTypes: floating.
[[nodiscard]] GANTRY_API Tensor log_softmax(const Tensor& self, Dim dim,
                                            std::optional<DType> dtype = {});

}  // namespace gantry
