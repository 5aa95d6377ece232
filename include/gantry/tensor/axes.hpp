#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include <gantry/core/dim.hpp>
#include <gantry/core/dims.hpp>

namespace gantry {

/// The dimensions of an operation: one, several, or all.
///
/// Converts implicitly from an integer (`t.sum(1)`), a list (`t.sum({0, -1})`), a vector, array or
/// span, but not from bools. Empty (`t.sum()`, `t.sum({})`) means all dimensions. Negative
/// dimensions count from the end.
/// Example: `const Tensor sums = ones({2, 3, 4}).sum({0, -1});  // [3]`
/// @since 0.1
class Axes {
 public:
  Axes() = default;
  /// One dimension, or those of a list. The operation that uses them checks them.
  template <std::integral T>
  requires(!std::same_as<T, bool>) Axes(T dim) : dims_({static_cast<std::int64_t>(dim)}) {}
  Axes(Dim dim) : Axes(int{dim}) {}
  Axes(std::initializer_list<std::int64_t> dims) : dims_(dims) {}
  template <std::same_as<bool> T>
  Axes(std::initializer_list<T> dims) = delete;
  Axes(const Dims& dims) : dims_(dims) {}
  Axes(const std::vector<std::int64_t>& dims) : dims_(dims) {}
  Axes(std::span<const std::int64_t> dims) : dims_(dims) {}
  template <std::size_t N>
  Axes(const std::array<std::int64_t, N>& dims) : dims_(dims) {}

  /// The dimensions as given. Empty means all.
  [[nodiscard]] const Dims& dims() const noexcept { return dims_; }
  /// True if this means all dimensions.
  [[nodiscard]] bool all() const noexcept { return dims_.empty(); }

 private:
  Dims dims_;
};

}  // namespace gantry
