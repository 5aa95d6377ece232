#pragma once

#include <concepts>
#include <cstdint>
#include <ostream>

#include <gantry/core/dtype.hpp>

namespace gantry {

/// A C++ number on its way into a tensor operation; remembers only its category.
///
/// Implicitly made from any arithmetic type. In type promotion a Scalar gives way to tensors of the
/// same or a higher category.
class Scalar {
 public:
  Scalar() : Scalar(0) {}
  Scalar(bool value) : category_(DTypeCategory::boolean), integer_(value), real_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Scalar(T value)
      : category_(DTypeCategory::integral),
        integer_(static_cast<std::int64_t>(value)),
        real_(static_cast<double>(value)) {}
  template <std::floating_point T>
  Scalar(T value)
      : category_(DTypeCategory::floating), integer_(0), real_(static_cast<double>(value)) {}
  Scalar(float16 value) : Scalar(static_cast<float>(value)) {}
  Scalar(bfloat16 value) : Scalar(static_cast<float>(value)) {}

  /// boolean, integral or floating.
  [[nodiscard]] DTypeCategory category() const { return category_; }
  /// The type that a 0-dim tensor made of this number gets: bool, i64 or f32.
  [[nodiscard]] DType default_dtype() const;
  /// The value converted to T with C++'s rules; to float16 and bfloat16 by way of float, as
  /// PyTorch.
  template <class T>
  [[nodiscard]] T to() const {
    if constexpr (std::same_as<T, float16> || std::same_as<T, bfloat16>) {
      return T(static_cast<float>(real_));
    } else if (category_ == DTypeCategory::floating) {
      return static_cast<T>(real_);
    } else {
      return static_cast<T>(integer_);
    }
  }

 private:
  DTypeCategory category_;
  std::int64_t integer_;
  double real_;
};

/// Writes the number; booleans as "true" and "false".
std::ostream& operator<<(std::ostream& out, const Scalar& scalar);

}  // namespace gantry
