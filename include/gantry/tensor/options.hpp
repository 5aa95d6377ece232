#pragma once

#include <cstdint>
#include <optional>

#include <gantry/core/dtype.hpp>
#include <gantry/device/device.hpp>

namespace gantry {

/// What a new tensor is made of; an aggregate for designated initializers:
/// `zeros({2, 3}, {.dtype = i64, .device = "cuda:1"})`.
///
/// A member left unset means the default: f32 (or what the values suggest) on the CPU for
/// factories, the source's for `*_like`, `new_*` and `to`. A device without index ("cuda") is
/// resolved to the calling thread's current device at the call.
struct TensorOptions {
  std::optional<DType> dtype = std::nullopt;
  std::optional<Device> device = std::nullopt;
  bool pinned = false;  ///< page-locked memory; for CPU tensors only
};

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

}  // namespace gantry
