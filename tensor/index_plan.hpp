#pragma once

#include <span>
#include <string_view>

#include <gantry/core/dims.hpp>
#include <gantry/device/device.hpp>
#include <gantry/tensor/index.hpp>

namespace gantry::detail {

// The layout of a view. Every list of integers, slices, None and Ellipsis makes one.
struct ViewPlan {
  Shape sizes;
  Dims strides;
  std::int64_t offset = 0;
};

// The view that an index list makes of a layout. A pure function; the device is for errors only.
// Throws: IndexError "index 5 is out of bounds for dimension 0 with size 3", "too many indices for
// tensor of dimension 2", …
[[nodiscard]] ViewPlan plan_index(std::string_view op, const ViewPlan& layout,
                                  std::span<const Index> indices, Device device);

}  // namespace gantry::detail
