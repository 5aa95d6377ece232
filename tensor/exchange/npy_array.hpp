// An array in NumPy's format: a header, and the elements behind it.
#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

#include <gantry/tensor/tensor.hpp>

#include "tensor/exchange/byte_source.hpp"

namespace gantry::detail {

// Throws unless NumPy has the dtype of `self`: InvalidArgument, DTypeError.
void check_npy(std::string_view op, const Tensor& self);

// Writes header and elements. Stops at a write that fails. Blocks the host.
void write_npy(std::string_view op, std::ostream& out, const Tensor& self);

// The bytes that write_npy() writes.
[[nodiscard]] std::uint64_t npy_bytes(const Tensor& self);

// Reads an array that is all of `source`. `placed` is a result of load_options().
// Throws: Error, DTypeError or ShapeError, with the source's name.
[[nodiscard]] Tensor read_npy(const ByteSource& source, const TensorOptions& placed);

}  // namespace gantry::detail
