#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <gantry/core/export.hpp>

namespace gantry {

class Tensor;

/// Python's None. In an index list it inserts a dimension of size 1; in a Slice it is the default
/// bound.
inline constexpr std::nullopt_t None = std::nullopt;

/// The type of `Ellipsis`.
/// @since 0.1
struct EllipsisType {};

/// Python's `...` in an index list: all dimensions that no other entry selects. A list has at most
/// one.
inline constexpr EllipsisType Ellipsis{};

/// The positions start, start + step, … before stop of one dimension: Python's `start:stop:step`.
///
/// A negative bound counts from the end. Bounds outside the dimension are clamped to it. `step` is
/// positive.
/// @since 0.1
struct Slice {
  /// The range [first, last) in steps of `stride`. Bounds are not checked before use.
  Slice(std::optional<std::int64_t> first = {}, std::optional<std::int64_t> last = {},
        std::optional<std::int64_t> stride = {})
      : start(first), stop(last), step(stride.value_or(1)) {}

  std::optional<std::int64_t> start;  ///< first position; none: 0
  std::optional<std::int64_t> stop;   ///< end, exclusive; none: the size
  std::int64_t step = 1;              ///< distance of two positions
};

/// One entry of an index list: an integer, a Slice, None, Ellipsis (also "..."), a bool, or a
/// tensor.
///
/// A bool inserts a dimension, of size 1 for true and of size 0 for false. A tensor of i32 or i64
/// holds positions. A tensor of bool or u8 is a mask, which selects elements where it is not zero.
/// A mask indexes as many dimensions as it has. A 0-dim tensor of one of these types, of i8 or of
/// i16 counts as an integer or a bool, which the host reads.
///
/// The tensors and bools of a list are broadcast to one shape. Its dimensions replace the indexed
/// dimensions if these are adjacent; otherwise they come first. Negative positions count from the
/// end.
/// Device/stream: a tensor is on the CPU or on the indexed tensor's device. For a mask, the host
/// waits for the number of selected elements; for a 0-dim tensor on a device, it waits for the
/// element. Positions on the CPU are copied to the device through page-locked memory, without a
/// wait.
/// @code
/// const Tensor x = arange(24).view({2, 3, 4});
/// const Tensor part = x.index({Ellipsis, Slice(1, 3)});  // [2, 3, 2]
/// x.index_put_({0, None}, 7);
/// @endcode
/// @since 0.1
class GANTRY_API Index {
 public:
  /// Every kind of entry.
  using Value = std::variant<std::int64_t, Slice, std::nullopt_t, EllipsisType, bool,
                             std::shared_ptr<const Tensor>>;

  /// An entry of the kind of its argument.
  template <std::integral T>
  requires(!std::same_as<T, bool>) Index(T position)
      : value_(static_cast<std::int64_t>(position)) {}
  template <std::same_as<bool> T>
  Index(T flag) : value_(std::in_place_type<bool>, flag) {}
  Index(const Slice& slice) : value_(slice) {}
  Index(std::nullopt_t) : value_(std::nullopt) {}
  Index(EllipsisType) : value_(EllipsisType{}) {}
  Index(const Tensor& tensor);
  /// Throws: InvalidArgument unless `text` is "...".
  Index(const char* text);

  /// The entry as a variant.
  [[nodiscard]] const Value& value() const noexcept { return value_; }
  /// The entry in Python's notation: "3", "1:5:2", "None", "...", "True"; of a tensor "i64 [2, 3]".
  [[nodiscard]] std::string str() const;

 private:
  Value value_;
};

}  // namespace gantry
