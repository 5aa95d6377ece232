#pragma once

#include <concepts>
#include <optional>
#include <type_traits>

#include <gantry/core/dim.hpp>
#include <gantry/core/export.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/results.hpp>
#include <gantry/tensor/tensor.hpp>

/// Reductions that combine several others.
///
/// Shapes, order, device, stream, aliasing and errors: as in reductions.hpp.
/// @since 0.3
namespace gantry {

/// std and mean of the same elements, in one call: `auto [deviation, mean] = std_mean(t, {.dims =
/// 1})`. DTypes: floating.
[[nodiscard]] GANTRY_API StdMean std_mean(const Tensor& self, const VarianceOptions& options = {});
template <class T = Axes>  // a template, as of std
[[nodiscard]] StdMean std_mean(const Tensor& self, const std::type_identity_t<T>& dims,
                               double correction = 1, bool keepdim = false) {
  return std_mean(self,
                  VarianceOptions{.dims = dims, .correction = correction, .keepdim = keepdim});
}
template <std::same_as<bool> T>
[[nodiscard]] StdMean std_mean(const Tensor& self, T unbiased) {
  return std_mean(self, VarianceOptions{.correction = unbiased ? 1.0 : 0.0});
}
/// var and mean of the same elements, in one call. DTypes: floating.
[[nodiscard]] GANTRY_API VarMean var_mean(const Tensor& self, const VarianceOptions& options = {});
template <class T = Axes>  // a template, as of var
[[nodiscard]] VarMean var_mean(const Tensor& self, const std::type_identity_t<T>& dims,
                               double correction = 1, bool keepdim = false) {
  return var_mean(self,
                  VarianceOptions{.dims = dims, .correction = correction, .keepdim = keepdim});
}
template <std::same_as<bool> T>
[[nodiscard]] VarMean var_mean(const Tensor& self, T unbiased) {
  return var_mean(self, VarianceOptions{.correction = unbiased ? 1.0 : 0.0});
}
/// amin and amax along `dim`, or of all elements. Throws: ShapeError for an empty reduction.
[[nodiscard]] GANTRY_API MinMax aminmax(const Tensor& self, std::optional<Dim> dim = {},
                                        bool keepdim = false);
/// sum, where NaN counts as 0. DTypes: as sum.
[[nodiscard]] GANTRY_API Tensor nansum(const Tensor& self, const Axes& dims = {},
                                       bool keepdim = false, std::optional<DType> dtype = {});
/// Mean of the elements that are not NaN; NaN if there is none. DTypes: floating, also `dtype`.
[[nodiscard]] GANTRY_API Tensor nanmean(const Tensor& self, const Axes& dims = {},
                                        bool keepdim = false, std::optional<DType> dtype = {});
/// The p-norm of self - other, whose shapes broadcast. DTypes: promoted, floating.
[[nodiscard]] GANTRY_API Tensor dist(const Tensor& self, const Tensor& other, double p = 2);

}  // namespace gantry
