#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <gantry/core/export.hpp>

namespace gantry {

/// Python's None. In an index list it inserts a dimension of size 1; in a Slice it is the default
/// bound.
inline constexpr std::nullopt_t None = std::nullopt;

/// The type of `Ellipsis`.
struct EllipsisType {};

/// Python's `...` in an index list: all dimensions that no other entry selects. A list has at most
/// one.
inline constexpr EllipsisType Ellipsis{};

/// The positions start, start + step, … before stop of one dimension: Python's `start:stop:step`.
///
/// A negative bound counts from the end. Bounds outside the dimension are clamped to it. `step` is
/// positive.
struct Slice {
  /// The range [first, last) in steps of `stride`. Bounds are not checked before use.
  Slice(std::optional<std::int64_t> first = {}, std::optional<std::int64_t> last = {},
        std::optional<std::int64_t> stride = {})
      : start(first), stop(last), step(stride.value_or(1)) {}

  std::optional<std::int64_t> start;  ///< first position; none: 0
  std::optional<std::int64_t> stop;   ///< end, exclusive; none: the size
  std::int64_t step = 1;              ///< distance of two positions
};

/// One entry of an index list: an integer, a Slice, None, Ellipsis (also "..."), or a bool.
///
/// A bool inserts a dimension, of size 1 for true and of size 0 for false. Several bools share one
/// dimension.
class GANTRY_API Index {
 public:
  /// Every kind of entry.
  using Value = std::variant<std::int64_t, Slice, std::nullopt_t, EllipsisType, bool>;

  /// An entry of the kind that the argument's type names.
  template <std::integral T>
  requires(!std::same_as<T, bool>) Index(T position)
      : value_(static_cast<std::int64_t>(position)) {}
  template <std::same_as<bool> T>
  Index(T flag) : value_(std::in_place_type<bool>, flag) {}
  Index(const Slice& slice) : value_(slice) {}
  Index(std::nullopt_t) : value_(std::nullopt) {}
  Index(EllipsisType) : value_(EllipsisType{}) {}
  /// Throws: InvalidArgument unless `text` is "...".
  Index(const char* text);

  /// The entry as a variant.
  [[nodiscard]] const Value& value() const noexcept { return value_; }
  /// The entry in Python's notation: "3", "1:5:2", "None", "...", "True".
  [[nodiscard]] std::string str() const;

 private:
  Value value_;
};

}  // namespace gantry
