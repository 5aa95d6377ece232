#pragma once

#include <optional>
#include <ostream>

#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// Format of printed tensors, as in PyTorch's set_printoptions.
/// @since 0.1
struct PrintOptions {
  int precision = 4;              ///< digits after the decimal point of fractional numbers
  std::int64_t threshold = 1000;  ///< tensors with more elements are summarized
  int edge_items = 3;             ///< elements at each end of a summarized dim
  int line_width = 80;            ///< characters per line
  /// Scientific notation: true always, false never. Absent: if the largest shown magnitude is above
  /// 1e8 or more than 1000 times the smallest, or if the smallest is below 1e-4.
  std::optional<bool> sci_mode = {};
};

/// The print options of this process.
/// @since 0.1
[[nodiscard]] GANTRY_API PrintOptions print_options();
/// Sets the print options of this process. Throws: InvalidArgument for a negative value, or for 0
/// edge_items or line_width. Thread safety: any thread.
/// @since 0.1
GANTRY_API void set_print_options(const PrintOptions& options);

/// Writes the elements as PyTorch does, in nested brackets and with one format for all. Shape,
/// dtype and device follow. Writes an undefined tensor as "[undefined tensor]".
///
/// Device/stream: blocks until the elements are on the host.
GANTRY_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace gantry
