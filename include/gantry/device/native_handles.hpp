#pragma once

#include <array>
#include <cstddef>

#include <gantry/core/macros.hpp>

namespace gantry {

/// The driver's handle of a stream. A null handle is the device's legacy default stream.
/// @since 0.1
struct NativeStream {
  int device = 0;          ///< index of the device
  void* handle = nullptr;  ///< cudaStream_t on CUDA

  friend bool operator==(const NativeStream&, const NativeStream&) = default;
};

/// The driver's handle of an event: cudaEvent_t on CUDA.
using NativeEvent = void*;

/// Opaque name of an event that another process can open.
/// @since 0.1
struct NativeEventHandle {
  std::array<std::byte, 64> bytes{};  ///< opaque
};

}  // namespace gantry
