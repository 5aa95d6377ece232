#include "tensor/impl/stride_algebra.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>

namespace gantry::detail {

Dims contiguous_strides(const Shape& sizes) {
  Dims strides = sizes;
  std::int64_t step = 1;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    strides[d] = step;
    step *= std::max<std::int64_t>(sizes[d], 1);
  }
  return strides;
}

bool is_contiguous(const Shape& sizes, const Dims& strides) {
  std::int64_t expected = 1;
  bool dense = true;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    if (sizes[d] == 0) return true;
    if (sizes[d] == 1) continue;
    dense = dense && strides[d] == expected;
    expected *= sizes[d];
  }
  return dense;
}

std::int64_t checked_numel(std::string_view op, const Shape& sizes) {
  // The other sizes of an empty shape count too, because its row-major strides are their products.
  std::int64_t numel = 1;
  std::int64_t step = 1;
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(step, std::max<std::int64_t>(size, 1), &step)) {
      throw ShapeError(fmt::format("{}: expected a shape of less than 2^63 elements, but got {}",
                                   op, sizes.str()));
    }
    numel *= size == 0 ? 0 : 1;
  }
  return numel == 0 ? 0 : step;
}

std::int64_t checked_extent(std::string_view op, const Shape& sizes, const Dims& strides,
                            DType dtype) {
  if (checked_numel(op, sizes) == 0) return 0;
  std::int64_t last = 0;
  std::int64_t bytes = 0;
  bool overflow = false;
  for (int d = 0; d < sizes.size(); ++d) {
    std::int64_t span = 0;
    overflow = overflow || __builtin_mul_overflow(sizes[d] - 1, strides[d], &span) ||
               __builtin_add_overflow(last, span, &last);
  }
  overflow = overflow || __builtin_add_overflow(last, 1, &last) ||
             __builtin_mul_overflow(last, static_cast<std::int64_t>(element_size(dtype)), &bytes);
  if (overflow) {
    throw ShapeError(fmt::format(
        "{}: expected a layout of less than 2^63 bytes, but got sizes {} and strides {}", op,
        sizes.str(), strides.str()));
  }
  return last;
}

void check_layout(std::string_view op, const Shape& sizes, const Dims& strides, std::int64_t offset,
                  DType dtype, std::size_t storage_bytes, std::optional<Device> device) {
  const auto where = [&] { return device ? device->str() : std::string(); };
  if (sizes.size() != strides.size()) {
    throw ShapeError(fmt::format("{}: mismatch in length of strides and shape, but got {} and {}",
                                 op, strides.str(), sizes.str()),
                     where());
  }
  for (const std::int64_t size : sizes) {
    if (size >= 0) continue;
    throw ShapeError(fmt::format("{}: Trying to create tensor with negative dimension {}: {}", op,
                                 size, sizes.str()),
                     where());
  }
  for (const std::int64_t stride : strides) {
    if (stride >= 0) continue;
    throw ShapeError(
        fmt::format("{}: Negative strides are not supported at the moment, got strides: {}", op,
                    strides.str()),
        where());
  }
  const std::int64_t extent = checked_extent(op, sizes, strides, dtype);
  const auto capacity = static_cast<std::int64_t>(storage_bytes / element_size(dtype));
  if (offset >= 0 && (extent == 0 || (offset <= capacity && extent <= capacity - offset))) return;
  throw ShapeError(
      fmt::format("{}: sizes {}, strides {}, storage offset {} and itemsize {} are out of bounds "
                  "for storage "
                  "of size {}",
                  op, sizes.str(), strides.str(), offset, element_size(dtype), storage_bytes),
      where());
}

Shape infer_sizes(std::string_view op, const Shape& sizes, std::int64_t numel, Device device) {
  Shape known = sizes;
  int unknown = -1;
  for (int d = 0; d < sizes.size(); ++d) {
    if (sizes[d] >= 0) continue;
    if (sizes[d] != -1) {
      throw ShapeError(fmt::format("{}: invalid shape dimension {}", op, sizes[d]), device.str());
    }
    if (unknown >= 0)
      throw ShapeError(fmt::format("{}: only one dimension can be inferred", op), device.str());
    unknown = d;
    known[d] = 1;
  }
  const std::int64_t product = checked_numel(op, known);
  if (unknown < 0 ? product == numel : product > 0 && numel % product == 0) {
    if (unknown >= 0) known[unknown] = numel / product;
    return known;
  }
  if (unknown >= 0 && product == 0 && numel == 0) {
    throw ShapeError(
        fmt::format("{}: cannot reshape tensor of 0 elements into shape {} because the unspecified "
                    "dimension size -1 can be any value and is ambiguous",
                    op, sizes.str()),
        device.str());
  }
  throw ShapeError(
      fmt::format("{}: shape '{}' is invalid for input of size {}", op, sizes.str(), numel),
      device.str());
}

std::optional<Dims> view_strides(const Shape& sizes, const Dims& strides, const Shape& new_sizes) {
  if (sizes.product() == 0) {
    return sizes == new_sizes ? strides : contiguous_strides(new_sizes);
  }
  // From the last dim on, adjacent old dims that are mutually dense form a chunk. The new dims must
  // divide these chunks exactly, one after the other.
  Dims result = new_sizes;
  int d = new_sizes.size() - 1;
  std::int64_t chunk = 1;
  std::int64_t covered = 1;
  std::int64_t base = sizes.empty() ? 1 : strides.back();
  for (int old = sizes.size() - 1; old >= 0; --old) {
    chunk *= sizes[old];
    const bool ends_chunk = old == 0 || (sizes[old - 1] != 1 && strides[old - 1] != chunk * base);
    if (!ends_chunk) continue;
    while (d >= 0 && (covered < chunk || new_sizes[d] == 1)) {
      result[d] = covered * base;
      covered *= new_sizes[d];
      --d;
    }
    if (covered != chunk) return std::nullopt;
    if (old > 0) {
      base = strides[old - 1];
      chunk = 1;
      covered = 1;
    }
  }
  for (; d >= 0; --d) {
    if (new_sizes[d] != 1) return std::nullopt;
    result[d] = covered * base;
  }
  return result;
}

}  // namespace gantry::detail
