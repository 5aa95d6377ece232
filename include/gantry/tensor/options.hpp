#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <gantry/core/dtype.hpp>
#include <gantry/device/device.hpp>
#include <gantry/tensor/axes.hpp>

namespace gantry {

/// The properties of a new tensor, an aggregate for designated initializers:
/// `zeros({2, 3}, {.dtype = i64, .device = "cuda:1"})`.
///
/// Factories default to f32 (or the dtype of the given values) on the CPU. `*_like`, `new_*` and
/// `to` default to the source's properties. A device without index ("cuda") is the calling thread's
/// current device at the call.
struct TensorOptions {
  std::optional<DType> dtype = std::nullopt;    ///< element type
  std::optional<Device> device = std::nullopt;  ///< device of the memory
  bool pinned = false;                          ///< page-locked memory; CPU tensors only
};

/// A dtype, device or device name in place of TensorOptions: `zeros({2}, f16)`,
/// `ones({2}, Device::cuda(1))`, `rand({2}, "cuda:1")`.
template <class T>
concept TensorOption =
    std::same_as<T, DType> || std::same_as<T, Device> || std::same_as<T, const char*> ||
    std::same_as<T, std::string> || std::same_as<T, std::string_view>;

namespace detail {
[[nodiscard]] inline TensorOptions only(DType dtype) { return {.dtype = dtype}; }
[[nodiscard]] inline TensorOptions only(const Device& device) { return {.device = device}; }
[[nodiscard]] inline const TensorOptions& only(const TensorOptions& options) { return options; }

// TensorOptions or one of them. A braced list at such a parameter means TensorOptions, its default.
template <class T>
concept AnyOptions = TensorOption<T> || std::same_as<T, TensorOptions>;
}  // namespace detail

/// The rounding of a quotient: none, toward zero, or down.
enum class RoundingMode : std::uint8_t { none, trunc, floor };

/// Options of Tensor::copy_.
struct CopyOptions {
  /// True lets the call return before the copy is complete. It affects only copies between a device
  /// and pinned host memory. All other copies between device and host block.
  bool non_blocking = false;
};

/// Options of Tensor::to.
struct ToOptions {
  bool non_blocking = false;  ///< as in CopyOptions
  bool copy = false;          ///< true copies even if device and dtype are unchanged
};

/// Options of var and std: `t.var({.correction = 0})`, `t.std({.dims = 1, .keepdim = true})`.
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
