// The header of a NumPy file.
#pragma once

#include <cstdint>
#include <string>

#include <gantry/core/dims.hpp>
#include <gantry/core/dtype.hpp>

#include "tensor/exchange/byte_source.hpp"

namespace gantry::detail {

struct NpyHeader {
  DType dtype{};
  bool big_endian = false;
  bool fortran_order = false;
  Shape sizes;              ///< as NumPy shows them, in either order
  std::uint64_t bytes = 0;  ///< of magic, lengths and header: the elements follow
};

// False for bf16 and 8-bit floats, which NumPy does not have.
[[nodiscard]] bool has_npy_type(DType dtype);

// Reads and checks the header, and that the elements end where the source ends.
// Throws: Error, DTypeError or ShapeError, with the source's name.
[[nodiscard]] NpyHeader read_npy_header(const ByteSource& source);

// The header of version 1.0, as NumPy writes it. Version 2.0 is for headers of more than 64 KiB,
// and that of 8 dims has less than 256 bytes. Precondition: has_npy_type(dtype).
[[nodiscard]] std::string npy_header(DType dtype, bool fortran_order, const Shape& sizes);

}  // namespace gantry::detail
