#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gantry/core/export.hpp>

namespace gantry {

/// Largest number of dimensions of a tensor.
inline constexpr int kMaxDims = 8;

/// A short list of up to 8 integers, kept inline: a shape, strides or a list of dimensions.
///
/// Made implicitly from a braced list, a vector, an array, a span or one integer (`zeros(4)`,
/// `t.view(-1)`), but not from bools. Throws: ShapeError for more than 8 values.
/// @code
/// const Dims sizes{2, 3, 4};
/// const std::int64_t last = sizes[sizes.size() - 1];
/// const Tensor x = zeros(sizes);
/// @endcode
/// @since 0.1
class GANTRY_API Dims {
 public:
  /// Type of one value.
  using value_type = std::int64_t;
  /// Iterator over the values; it can write them.
  using iterator = std::int64_t*;
  /// Iterator over the values, read only.
  using const_iterator = const std::int64_t*;

  Dims() = default;
  /// A copy of the given values. Throws: ShapeError for more than 8.
  Dims(std::initializer_list<std::int64_t> values) { assign(values.begin(), values.size()); }
  template <std::same_as<bool> T>
  Dims(std::initializer_list<T> values) = delete;
  Dims(const std::vector<std::int64_t>& values) { assign(values.data(), values.size()); }
  Dims(std::span<const std::int64_t> values) { assign(values.data(), values.size()); }
  template <std::size_t N>
  Dims(const std::array<std::int64_t, N>& values) {
    assign(values.data(), N);
  }
  template <std::integral T>
  requires(!std::same_as<T, bool>) Dims(T value) : Dims({static_cast<std::int64_t>(value)}) {}
  /// `count` copies of `value`.
  static Dims filled(int count, std::int64_t value);

  /// Number of values: 0 to 8.
  [[nodiscard]] int size() const noexcept { return size_; }
  /// True if there are no values.
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// Value at position `i`, which is not checked.
  [[nodiscard]] std::int64_t operator[](int i) const noexcept { return values_[i]; }
  [[nodiscard]] std::int64_t& operator[](int i) noexcept { return values_[i]; }
  /// First value. Precondition: not empty.
  [[nodiscard]] std::int64_t front() const noexcept { return values_[0]; }
  /// Last value. Precondition: not empty.
  [[nodiscard]] std::int64_t back() const noexcept { return values_[size_ - 1]; }
  /// Address of the first value.
  [[nodiscard]] const std::int64_t* data() const noexcept { return values_; }
  /// Iterators over the values, in order.
  /// @{
  [[nodiscard]] iterator begin() noexcept { return values_; }
  [[nodiscard]] iterator end() noexcept { return values_ + size_; }
  [[nodiscard]] const_iterator begin() const noexcept { return values_; }
  [[nodiscard]] const_iterator end() const noexcept { return values_ + size_; }
  /// @}

  /// Appends one value. Throws: ShapeError if there are 8 already.
  void push_back(std::int64_t value);
  /// Inserts `value` before position `at`, 0 to size(). `at` is not checked. Throws: ShapeError if
  /// there are 8 values already.
  void insert(int at, std::int64_t value);
  /// Removes the value at position `at`, which is not checked.
  void erase(int at);
  /// Product of all values, 1 if empty.
  [[nodiscard]] std::int64_t product() const noexcept;
  /// Copies to a vector.
  [[nodiscard]] std::vector<std::int64_t> vec() const { return {begin(), end()}; }
  /// Text such as "[2, 3]".
  [[nodiscard]] std::string str() const;
  /// Text such as "2x3", as matmul's errors print shapes.
  [[nodiscard]] std::string str_x() const;

  friend bool operator==(const Dims& a, const Dims& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  void assign(const std::int64_t* values, std::size_t count);

  std::int64_t values_[kMaxDims] = {};
  int size_ = 0;
};

/// A tensor's shape.
using Shape = Dims;

/// Writes "[2, 3]".
GANTRY_API std::ostream& operator<<(std::ostream& out, const Dims& dims);

}  // namespace gantry

/// A hash that is equal for equal lists.
template <>
struct std::hash<gantry::Dims> {
  std::size_t operator()(const gantry::Dims& dims) const noexcept {
    auto hash = static_cast<std::size_t>(dims.size());
    for (const std::int64_t value : dims) {
      hash ^= std::hash<std::int64_t>{}(value) + 0x9E3779B97F4A7C15u + (hash << 6) + (hash >> 2);
    }
    return hash;
  }
};
