#pragma once

#include <cstdint>

#include <gantry/core/dims.hpp>
#include <gantry/core/dtype.hpp>
#include <gantry/core/macros.hpp>

namespace gantry {

/// A non-owning view of a tensor for kernels: address, element type and layout. Trivially copyable.
///
/// `data` is the address of element (0, …, 0). Strides count elements and may be 0. Strides of
/// read-only operands may be negative.
/// @since 0.1
struct TensorRef {
  /// Address of element (0, …, 0).
  void* data = nullptr;
  /// Element type.
  DType dtype = DType::f32;
  /// Number of dimensions.
  std::int32_t ndim = 0;
  /// Size of each dimension.
  std::int64_t sizes[kMaxDims] = {};
  /// Distance between neighbours in each dimension, in elements.
  std::int64_t strides[kMaxDims] = {};

  /// Number of elements.
  [[nodiscard]] GANTRY_HD std::int64_t numel() const noexcept {
    std::int64_t result = 1;
    for (std::int32_t i = 0; i < ndim; ++i) result *= sizes[i];
    return result;
  }

  /// True if the elements are dense in row-major order.
  [[nodiscard]] GANTRY_HD bool is_contiguous() const noexcept {
    std::int64_t expected = 1;
    for (std::int32_t i = ndim - 1; i >= 0; --i) {
      if (sizes[i] == 0) return true;
      if (sizes[i] != 1 && strides[i] != expected) return false;
      expected *= sizes[i];
    }
    return true;
  }
};

}  // namespace gantry
