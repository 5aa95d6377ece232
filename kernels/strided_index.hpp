#pragma once

#include <cstdint>

#include <gantry/core/dims.hpp>
#include <gantry/core/macros.hpp>

namespace gantry::kernels {

// Some dims of a tensor, outermost first. Element `i` of their row-major enumeration is `offset(i)`
// elements from the base. A POD that kernels take by value.
struct StridedIndex {
  std::int32_t ndim = 0;
  std::int64_t sizes[kMaxDims] = {};
  std::int64_t strides[kMaxDims] = {};

  [[nodiscard]] GANTRY_HD std::int64_t count() const {
    std::int64_t result = 1;
    for (std::int32_t d = 0; d < ndim; ++d) result *= sizes[d];
    return result;
  }

  [[nodiscard]] GANTRY_HD std::int64_t offset(std::int64_t i) const {
    std::int64_t result = 0;
    if (i <= 0xffffffffLL) {  // 32-bit division is several times faster, especially on a GPU
      std::uint32_t rest = static_cast<std::uint32_t>(i);
      for (std::int32_t d = ndim - 1; d > 0; --d) {
        if (sizes[d] > rest) return result + rest * strides[d];
        const std::uint32_t size = static_cast<std::uint32_t>(sizes[d]);
        const std::uint32_t quotient = rest / size;
        result += static_cast<std::int64_t>(rest - quotient * size) * strides[d];
        rest = quotient;
      }
      return ndim > 0 ? result + static_cast<std::int64_t>(rest) * strides[0] : result;
    }
    for (std::int32_t d = ndim - 1; d > 0; --d) {
      result += i % sizes[d] * strides[d];
      i /= sizes[d];
    }
    return ndim > 0 ? result + i * strides[0] : result;
  }

  // Appends an innermost dim. Merges it with the previous one if the two are dense.
  void append(std::int64_t size, std::int64_t stride) {
    if (size == 1) return;
    if (ndim > 0 && strides[ndim - 1] == size * stride) {
      sizes[ndim - 1] *= size;
      strides[ndim - 1] = stride;
      return;
    }
    sizes[ndim] = size;
    strides[ndim] = stride;
    ++ndim;
  }
};

}  // namespace gantry::kernels
