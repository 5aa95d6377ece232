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

/// What a new tensor is made of; an aggregate for designated initializers:
/// `zeros({2, 3}, {.dtype = i64, .device = "cuda:1"})`.
///
/// A member left unset means the default: f32 (or what the values suggest) on the CPU for
/// factories, the source's for `*_like`, `new_*` and `to`. A device without index ("cuda") is
/// resolved to the calling thread's current device at the call.
struct TensorOptions {
  std::optional<DType> dtype = std::nullopt;    ///< element type
  std::optional<Device> device = std::nullopt;  ///< place of the memory
  bool pinned = false;                          ///< page-locked memory; for CPU tensors only
};

/// A dtype, a device or a device's name that stands alone for TensorOptions: `zeros({2}, f16)`,
/// `ones({2}, Device::cuda(1))`, `rand({2}, "cuda:1")`.
template <class T>
concept TensorOption =
    std::same_as<T, DType> || std::same_as<T, Device> || std::same_as<T, const char*> ||
    std::same_as<T, std::string> || std::same_as<T, std::string_view>;

namespace detail {
[[nodiscard]] inline TensorOptions only(DType dtype) { return {.dtype = dtype}; }
[[nodiscard]] inline TensorOptions only(const Device& device) { return {.device = device}; }
}  // namespace detail

/// How a quotient is rounded: not at all, toward zero, or down.
enum class RoundingMode : std::uint8_t { none, trunc, floor };

/// How Tensor::copy_ copies.
struct CopyOptions {
  /// Do not block the host; effective between a device and pinned host memory only.
  bool non_blocking = false;
};

/// How Tensor::to converts.
struct ToOptions {
  bool non_blocking = false;  ///< as in CopyOptions
  bool copy = false;          ///< a new tensor even if nothing changes
};

/// How var and std compute: `t.var({.correction = 0})`, `t.std({.dims = 1, .keepdim = true})`.
struct VarianceOptions {
  // Nobody but the default makes it, so a list without names is no VarianceOptions but Axes:
  // `t.var({0, 1})` names dims.
  /// Type of `named`, which only the default can make.
  class Named {
    friend VarianceOptions;
    constexpr Named() = default;
  };
  /// Never given: it keeps lists without names from being VarianceOptions.
  Named named = {};
  Axes dims = {};         ///< over which; default: all
  double correction = 1;  ///< squares are divided by n - correction
  bool keepdim = false;   ///< the reduced dims stay, with size 1
};

}  // namespace gantry
