#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <gantry/tensor/tensor.hpp>

/// The results of operations that return several tensors.
///
/// Each is a std::tuple of references to its members: `auto [values, indices] = t.max(1)`,
/// `std::get<0>(t.max(1))`, `std::tie(a, b) = t.max(1)`, `t.max(1).values`. It converts to a
/// std::tuple of tensors.
/// @since 0.1
namespace gantry {

/// Values along a dim, and their indices: `auto [values, indices] = t.max(1)`.
/// @since 0.1
struct ValuesAndIndices : std::tuple<Tensor&, Tensor&> {
  Tensor values;   ///< the elements
  Tensor indices;  ///< i64

  /// A result of these tensors.
  ValuesAndIndices(Tensor found, Tensor positions)
      : tuple(values, indices), values(std::move(found)), indices(std::move(positions)) {}
  ValuesAndIndices() : tuple(values, indices) {}
  ValuesAndIndices(const ValuesAndIndices& other) : ValuesAndIndices(other.values, other.indices) {}
  ValuesAndIndices(ValuesAndIndices&& other) noexcept
      : ValuesAndIndices(std::move(other.values), std::move(other.indices)) {}
  ~ValuesAndIndices() = default;
  /// Rebinds the members to the tensors of `other`.
  ValuesAndIndices& operator=(ValuesAndIndices other) noexcept {
    values = std::move(other.values);
    indices = std::move(other.indices);
    return *this;
  }
};

/// Element I of a result that is not kept: `const Tensor& values = get<0>(t.max(1))`.
template <std::size_t I>
requires(I < 2) [[nodiscard]] Tensor get(ValuesAndIndices&& pair) noexcept {
  return std::move(std::get<I>(pair));
}

/// The distinct elements of a tensor: `auto [values, inverse, counts] = unique(t, true, true,
/// true)`. A member that was not requested is an undefined tensor.
/// @since 0.3
struct UniqueElements : std::tuple<Tensor&, Tensor&, Tensor&> {
  Tensor values;   ///< 1-D, or slices
  Tensor inverse;  ///< i64, of the input's shape: the index in `values` of every element; or 1-D
  Tensor counts;   ///< i64: number of occurrences of each of `values`

  /// A result of these tensors.
  UniqueElements(Tensor distinct, Tensor positions, Tensor occurrences)
      : tuple(values, inverse, counts),
        values(std::move(distinct)),
        inverse(std::move(positions)),
        counts(std::move(occurrences)) {}
  UniqueElements() : tuple(values, inverse, counts) {}
  UniqueElements(const UniqueElements& other)
      : UniqueElements(other.values, other.inverse, other.counts) {}
  UniqueElements(UniqueElements&& other) noexcept
      : UniqueElements(std::move(other.values), std::move(other.inverse), std::move(other.counts)) {
  }
  ~UniqueElements() = default;
  /// Rebinds the members to the tensors of `other`.
  UniqueElements& operator=(UniqueElements other) noexcept {
    values = std::move(other.values);
    inverse = std::move(other.inverse);
    counts = std::move(other.counts);
    return *this;
  }
};

/// The result of std_mean.
/// @since 0.3
struct StdMean : std::tuple<Tensor&, Tensor&> {
  Tensor std;   ///< standard deviation
  Tensor mean;  ///< mean

  /// A result of these tensors.
  StdMean(Tensor deviation, Tensor average)
      : tuple(std, mean), std(std::move(deviation)), mean(std::move(average)) {}
  StdMean() : tuple(std, mean) {}
  StdMean(const StdMean& other) : StdMean(other.std, other.mean) {}
  StdMean(StdMean&& other) noexcept : StdMean(std::move(other.std), std::move(other.mean)) {}
  ~StdMean() = default;
  /// Rebinds the members to the tensors of `other`.
  StdMean& operator=(StdMean other) noexcept {
    std = std::move(other.std);
    mean = std::move(other.mean);
    return *this;
  }
};

/// The result of var_mean.
/// @since 0.3
struct VarMean : std::tuple<Tensor&, Tensor&> {
  Tensor var;   ///< variance
  Tensor mean;  ///< mean

  /// A result of these tensors.
  VarMean(Tensor variance, Tensor average)
      : tuple(var, mean), var(std::move(variance)), mean(std::move(average)) {}
  VarMean() : tuple(var, mean) {}
  VarMean(const VarMean& other) : VarMean(other.var, other.mean) {}
  VarMean(VarMean&& other) noexcept : VarMean(std::move(other.var), std::move(other.mean)) {}
  ~VarMean() = default;
  /// Rebinds the members to the tensors of `other`.
  VarMean& operator=(VarMean other) noexcept {
    var = std::move(other.var);
    mean = std::move(other.mean);
    return *this;
  }
};

/// The result of aminmax: the smallest and the largest element.
/// @since 0.3
struct MinMax : std::tuple<Tensor&, Tensor&> {
  Tensor min;  ///< smallest
  Tensor max;  ///< largest

  /// A result of these tensors.
  MinMax(Tensor smallest, Tensor largest)
      : tuple(min, max), min(std::move(smallest)), max(std::move(largest)) {}
  MinMax() : tuple(min, max) {}
  MinMax(const MinMax& other) : MinMax(other.min, other.max) {}
  MinMax(MinMax&& other) noexcept : MinMax(std::move(other.min), std::move(other.max)) {}
  ~MinMax() = default;
  /// Rebinds the members to the tensors of `other`.
  MinMax& operator=(MinMax other) noexcept {
    min = std::move(other.min);
    max = std::move(other.max);
    return *this;
  }
};

}  // namespace gantry

template <>
struct std::tuple_size<gantry::ValuesAndIndices> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, gantry::ValuesAndIndices> {
  using type = gantry::Tensor;
};

template <>
struct std::tuple_size<gantry::UniqueElements> : std::integral_constant<std::size_t, 3> {};
template <std::size_t I>
struct std::tuple_element<I, gantry::UniqueElements> {
  using type = gantry::Tensor;
};

template <>
struct std::tuple_size<gantry::StdMean> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, gantry::StdMean> {
  using type = gantry::Tensor;
};

template <>
struct std::tuple_size<gantry::VarMean> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, gantry::VarMean> {
  using type = gantry::Tensor;
};

template <>
struct std::tuple_size<gantry::MinMax> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, gantry::MinMax> {
  using type = gantry::Tensor;
};
