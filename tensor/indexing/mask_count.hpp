#pragma once

#include <cstdint>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// The elements of a tensor that are not zero. Note [Compaction].
struct MaskCount {
  std::int64_t found = 0;
  Tensor selection;  // i64, on the tensor's device
};

// Counts them on the current stream of the tensor's device. The host waits.
[[nodiscard]] MaskCount count_mask(const Tensor& mask);

}  // namespace gantry::detail
