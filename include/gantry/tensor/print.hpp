#pragma once

#include <ostream>

#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// How tensors are written.
struct PrintOptions {
  int precision = 4;              ///< digits behind the point
  std::int64_t threshold = 1000;  ///< more elements than this are abbreviated
  int edge_items = 3;             ///< elements shown at each end of an abbreviated dim
  int line_width = 80;            ///< columns
};

/// The options of this process.
[[nodiscard]] PrintOptions print_options();
/// Changes the options of this process. Throws: InvalidArgument for a negative value.
void set_print_options(const PrintOptions& options);

/// Writes the elements in nested brackets, then shape, dtype and device.
///
/// Device/stream: blocks until the elements are on the host. An undefined tensor is written as
/// "[undefined tensor]".
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace gantry
