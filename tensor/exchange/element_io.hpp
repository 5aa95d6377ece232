// The elements of tensors on their way to and from files: dense, in row-major order, and of little
// endian. Device memory passes through two page-locked buffers, so that the copy of one overlaps
// the file access of the other.
#pragma once

#include <bit>
#include <cstdint>
#include <ostream>
#include <string_view>

#include <gantry/tensor/tensor.hpp>

#include "tensor/exchange/byte_source.hpp"

namespace gantry::detail {

static_assert(std::endian::native == std::endian::little, "files are written as memory is");

// Bytes of the largest piece that is copied at once.
inline constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;

// Writes all elements; bool elements as 0 or 1. Blocks the host. Stops at a write that fails and
// leaves errno as it was then. `op` names the call for the stream sanitizer.
void write_elements(std::string_view op, std::ostream& stream, const Tensor& tensor);

// The place and form of elements in a source.
struct StoredElements {
  std::uint64_t offset = 0;
  bool big_endian = false;
};

// The options for a tensor that is loaded, with a device that exists. Throws: as factories do.
[[nodiscard]] TensorOptions load_options(std::string_view op, const TensorOptions& options);

// A new contiguous tensor of the elements in `source`, which hold `stored_dtype`, converted and
// placed as load_options() say. Bool bytes other than 0 are true. Blocks the host.
// Precondition: the elements lie within the source.
[[nodiscard]] Tensor load_elements(const ByteSource& source, const StoredElements& stored,
                                   const Shape& sizes, DType stored_dtype,
                                   const TensorOptions& options);

}  // namespace gantry::detail
