#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <gantry/core/dtype.hpp>
#include <gantry/device/device.hpp>
#include <gantry/tensor/axes.hpp>

namespace gantry {

struct TensorOptions;

namespace detail {

// A setting of TensorOptions: an optional value, which can be called as libtorch's builder is.
// It is only ever called as a member of options.
template <class T>
class Setting : public std::optional<T> {
 public:
  using std::optional<T>::optional;
  constexpr Setting() = default;
  constexpr Setting(const std::optional<T>& value) : std::optional<T>(value) {}

  // The options with T(value...) as this setting.
  template <class... A>
  requires(sizeof...(A) > 0 && std::constructible_from<T, A...>) [[nodiscard]] TensorOptions
  operator()(A&&... value) const;

  // Comparisons of a std::optional. Its own templates would take a Setting for a value.
  friend constexpr bool operator==(const Setting& a, const Setting& b) {
    return a.base() == b.base();
  }
  friend constexpr bool operator==(const Setting& a, const std::optional<T>& b) {
    return a.base() == b;
  }
  friend constexpr bool operator==(const Setting& a, const T& b) { return a.base() == b; }
  friend constexpr bool operator==(const Setting& a, std::nullopt_t) { return !a.has_value(); }

 private:
  [[nodiscard]] constexpr const std::optional<T>& base() const { return *this; }
};

}  // namespace detail

/// The properties of a new tensor, an aggregate for designated initializers:
/// `zeros({2, 3}, {.dtype = i64, .device = "cuda:1"})`.
///
/// Each setting is a std::optional. A call of one returns a copy of the options with that setting
/// changed, as in libtorch: `t.options().dtype(i64)`, `TensorOptions().device(DeviceType::cuda,
/// 1)`.
///
/// Factories default to f32 (or the dtype of the given values) on the CPU. `*_like`, `new_*` and
/// `to` default to the source's properties. A device without index ("cuda") is the calling thread's
/// current device at the call.
/// @since 0.1
struct TensorOptions {
  detail::Setting<DType> dtype = std::nullopt;    ///< element type
  detail::Setting<Device> device = std::nullopt;  ///< device of the memory
  bool pinned = false;                            ///< page-locked memory; CPU tensors only

  /// The options with `pinned` changed.
  [[nodiscard]] TensorOptions pinned_memory(bool value = true) const {
    TensorOptions result = *this;
    result.pinned = value;
    return result;
  }
};

namespace detail {
static_assert(std::is_standard_layout_v<TensorOptions>);  // for offsetof

template <class T>
template <class... A>
requires(sizeof...(A) > 0 && std::constructible_from<T, A...>)
    TensorOptions Setting<T>::operator()(A&&... value) const {
  constexpr bool kIsDtype = std::same_as<T, DType>;
  constexpr std::size_t kOffset =
      kIsDtype ? offsetof(TensorOptions, dtype) : offsetof(TensorOptions, device);
  const void* const options = reinterpret_cast<const std::byte*>(this) - kOffset;
  TensorOptions result = *static_cast<const TensorOptions*>(options);
  if constexpr (kIsDtype) {
    result.dtype = T(std::forward<A>(value)...);
  } else {
    result.device = T(std::forward<A>(value)...);
  }
  return result;
}
}  // namespace detail

/// Options of one dtype, to be continued as in libtorch: `dtype(i64).device("cuda:1")`.
/// @since 0.1
[[nodiscard]] inline TensorOptions dtype(DType value) { return {.dtype = value}; }
/// Options of one device, to be continued as in libtorch: `device("cuda").dtype(f16)`.
/// @since 0.1
[[nodiscard]] inline TensorOptions device(const Device& value) { return {.device = value}; }
[[nodiscard]] inline TensorOptions device(DeviceType type, int index) {
  return {.device = Device(type, index)};
}

/// A dtype, device, kind of device or device name in place of TensorOptions: `zeros({2}, f16)`,
/// `ones({2}, Device::cuda(1))`, `rand({2}, "cuda:1")`.
/// @since 0.1
template <class T>
concept TensorOption = std::same_as<T, DType> || std::same_as<T, Device> ||
    std::same_as<T, DeviceType> || std::same_as<T, const char*> || std::same_as<T, std::string> ||
    std::same_as<T, std::string_view>;

namespace detail {
[[nodiscard]] inline TensorOptions only(DType dtype) { return {.dtype = dtype}; }
[[nodiscard]] inline TensorOptions only(const Device& device) { return {.device = device}; }
[[nodiscard]] inline const TensorOptions& only(const TensorOptions& options) { return options; }

// TensorOptions or one of them. A braced list at such a parameter means TensorOptions, its default.
template <class T>
concept AnyOptions = TensorOption<T> || std::same_as<T, TensorOptions>;
}  // namespace detail

/// The rounding of a quotient: none, toward zero, or down.
/// @since 0.1
enum class RoundingMode : std::uint8_t { none, trunc, floor };

/// Options of Tensor::copy_.
/// @since 0.1
struct CopyOptions {
  /// True lets the call return before the copy is complete. It affects only copies between a device
  /// and pinned host memory. All other copies between device and host block.
  bool non_blocking = false;
};

/// Options of Tensor::to.
/// @since 0.1
struct ToOptions {
  bool non_blocking = false;  ///< as in CopyOptions
  bool copy = false;          ///< true copies even if device and dtype are unchanged
};

/// Options of var and std: `t.var({.correction = 0})`, `t.std({.dims = 1, .keepdim = true})`.
/// @since 0.1
struct VarianceOptions {
  // Only the default initializer can make a Named. A list without designators therefore converts to
  // Axes: in `t.var({0, 1})` both numbers are dims.
  /// Type of `named`.
  class Named {
    friend VarianceOptions;
    constexpr Named() = default;
  };
  /// Not for callers. It prevents a list without designators from converting to VarianceOptions.
  Named named = {};
  Axes dims = {};         ///< the reduced dims; default: all
  double correction = 1;  ///< the divisor is n - correction
  bool keepdim = false;   ///< keeps the reduced dims, with size 1
};

}  // namespace gantry
