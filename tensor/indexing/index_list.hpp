#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <gantry/core/dims.hpp>
#include <gantry/device/device.hpp>
#include <gantry/tensor/index.hpp>
#include <gantry/tensor/index_plan.hpp>

namespace gantry::detail {

// What an index list selects: a view, and of its dims those that tensors index. Beside tensors,
// bools index no dim, at their place.
struct ParsedIndices {
  ViewPlan view;
  std::vector<IndexedDims> indexed;  // in increasing order of their dims
};

// Parses an index list for a layout. The device is for errors. Reads 0-dim tensors; otherwise a
// pure function. Throws: IndexError "index 5 is out of bounds for dimension 0 with size 3", "too
// many indices for tensor of dimension 2", "The shape of the mask [2] at index 0 does not match the
// shape of the indexed tensor [3, 4] at index 0", …; InvalidArgument for an undefined tensor.
[[nodiscard]] ParsedIndices parse_indices(std::string_view op, const ViewPlan& layout,
                                          std::span<const Index> indices, Device device);

}  // namespace gantry::detail
