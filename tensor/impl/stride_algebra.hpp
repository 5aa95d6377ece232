#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <gantry/core/dims.hpp>
#include <gantry/core/dtype.hpp>
#include <gantry/device/device.hpp>

// Arithmetic on shapes and strides.
namespace gantry::detail {

// Row-major strides; dims of size 0 count as 1.
[[nodiscard]] Dims contiguous_strides(const Shape& sizes);
[[nodiscard]] bool is_contiguous(const Shape& sizes, const Dims& strides);

// The product of the sizes. Throws ShapeError if it does not fit 63 bits.
[[nodiscard]] std::int64_t checked_numel(std::string_view op, const Shape& sizes);
// The number of elements from the first to the last address, inclusive; 0 for an empty layout.
// Throws ShapeError if the number of bytes does not fit 63 bits.
[[nodiscard]] std::int64_t checked_extent(std::string_view op, const Shape& sizes,
                                          const Dims& strides, DType dtype);

// Throws ShapeError unless the layout has no negative sizes or strides and is within a storage of
// `storage_bytes` on `device`.
void check_layout(std::string_view op, const Shape& sizes, const Dims& strides, std::int64_t offset,
                  DType dtype, std::size_t storage_bytes, std::optional<Device> device = {});

// `sizes` with a -1 replaced so that the product is `numel`. `device` is for the error. Throws
// ShapeError "view: shape '[2, 3]' is invalid for input of size 5".
[[nodiscard]] Shape infer_sizes(std::string_view op, const Shape& sizes, std::int64_t numel,
                                Device device);

// The strides of a view with another shape of equally many elements; none if that needs a copy.
[[nodiscard]] std::optional<Dims> view_strides(const Shape& sizes, const Dims& strides,
                                               const Shape& new_sizes);

}  // namespace gantry::detail
