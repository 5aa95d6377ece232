#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// The elements of a CPU tensor of N dims, by index: `auto a = t.accessor<float, 2>()`, `a[i][j]`.
///
/// It does not own the memory, which must outlive it. Indices are not negative. A program that is
/// compiled without NDEBUG asserts that they are in range.
/// @code
/// const Tensor x = ones({2, 3});
/// auto elements = x.accessor<float, 2>();
/// elements[1][2] = 5;
/// @endcode
/// @since 0.3
template <class T, std::size_t N>
class TensorAccessor {
  static_assert(N >= 1 && N <= kMaxDims, "an accessor has 1 to 8 dims; data_ptr<T>() is for none");

 public:
  /// Elements at `data` with N sizes, and N strides in elements.
  TensorAccessor(T* data, std::span<const std::int64_t, N> sizes,
                 std::span<const std::int64_t, N> strides) noexcept
      : data_(data) {
    std::copy(sizes.begin(), sizes.end(), sizes_.begin());
    std::copy(strides.begin(), strides.end(), strides_.begin());
  }

  /// Element `i`, or of several dims the accessor of slice `i`.
  [[nodiscard]] decltype(auto) operator[](std::int64_t i) const noexcept {
    assert(i >= 0 && i < sizes_[0] && "an index of an accessor is out of range");
    T* const first = data_ + i * strides_[0];
    if constexpr (N == 1) {
      return static_cast<T&>(*first);
    } else {
      return TensorAccessor<T, N - 1>(first, std::span(sizes_).template subspan<1>(),
                                      std::span(strides_).template subspan<1>());
    }
  }
  /// The address of the first element.
  [[nodiscard]] T* data() const noexcept { return data_; }
  /// The size of each dim.
  [[nodiscard]] const std::array<std::int64_t, N>& sizes() const noexcept { return sizes_; }
  /// The stride of each dim, in elements.
  [[nodiscard]] const std::array<std::int64_t, N>& strides() const noexcept { return strides_; }
  [[nodiscard]] std::int64_t size(std::size_t dim) const { return sizes_.at(dim); }  ///< of one dim
  /// The stride of one dim.
  [[nodiscard]] std::int64_t stride(std::size_t dim) const { return strides_.at(dim); }

 private:
  T* data_;
  std::array<std::int64_t, N> sizes_;
  std::array<std::int64_t, N> strides_;
};

namespace detail {
// Throws ShapeError unless `self` has `dims` dims. An accessor also needs a CPU tensor: otherwise
// InvalidArgument.
GANTRY_API void check_accessor(const Tensor& self, std::size_t dims);
GANTRY_API void check_mdspan(const Tensor& self, std::size_t dims);
// Throws ShapeError: the sizes or strides are not the `expected` ones at `dim`.
[[noreturn]] GANTRY_API void refuse_mdspan(const Tensor& self, std::string_view expected,
                                           std::size_t dim);
}  // namespace detail

/// @cond  doxygen does not find their declarations
template <class T, std::size_t N>
TensorAccessor<T, N> Tensor::accessor() const& {
  detail::check_accessor(*this, N);
  return {data_ptr<T>(), std::span<const std::int64_t, N>(sizes().data(), N),
          std::span<const std::int64_t, N>(strides().data(), N)};
}

template <class Mdspan>
Mdspan Tensor::mdspan() const& {
  using Extents = typename Mdspan::extents_type;
  using Mapping = typename Mdspan::mapping_type;
  using Number = typename Mdspan::index_type;
  constexpr std::size_t kDims = Mdspan::rank();
  constexpr bool kHasStrides = requires(const Mapping& mapping) { mapping.strides(); };
  detail::check_mdspan(*this, kDims);
  auto* const first = data_ptr<typename Mdspan::element_type>();
  for (std::size_t d = 0; d < kDims; ++d) {
    if (!std::in_range<Number>(sizes()[static_cast<int>(d)]) ||
        !std::in_range<Number>(strides()[static_cast<int>(d)])) {
      detail::refuse_mdspan(*this, "numbers that fit the index type", d);
    }
    const auto fixed = static_cast<std::int64_t>(Extents::static_extent(d));
    if (fixed != -1 && fixed != size(d)) {
      detail::refuse_mdspan(*this, "size " + std::to_string(fixed), d);
    }
  }
  const auto extents = [&]<std::size_t... D>(std::index_sequence<D...>) {
    return Extents(static_cast<Number>(size(D))...);
  }
  (std::make_index_sequence<kDims>());
  if constexpr (kHasStrides) {
    std::remove_cvref_t<decltype(std::declval<const Mapping&>().strides())> steps{};
    for (std::size_t d = 0; d < kDims; ++d) {
      if (size(d) > 1 && stride(d) == 0) detail::refuse_mdspan(*this, "a stride above 0", d);
      steps[d] = static_cast<Number>(std::max<std::int64_t>(stride(d), 1));
    }
    return Mdspan(first, Mapping(extents, steps));
  } else {
    const Mapping mapping(extents);
    if constexpr (kDims > 0) {
      for (std::size_t d = 0; d < kDims; ++d) {
        const auto expected = static_cast<std::int64_t>(mapping.stride(d));
        if (size(d) > 1 && stride(d) != expected) {
          detail::refuse_mdspan(*this, "stride " + std::to_string(expected), d);
        }
      }
    }
    return Mdspan(first, mapping);
  }
}
/// @endcond

}  // namespace gantry
