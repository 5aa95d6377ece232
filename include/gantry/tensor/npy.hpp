#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/tensor/options.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// Writes a tensor to a NumPy file (`.npy`), which numpy.load() reads.
///
/// The file is replaced atomically: after an error the previous file is unchanged. Dense
/// column-major tensors are written as such (`fortran_order`), all others in row-major order.
/// DTypes: all but bf16 and 8-bit floats, which NumPy does not have.
/// Device/stream: current stream of the tensor's device; the host blocks. Device memory passes
/// through page-locked buffers of 8 MiB.
/// Throws: InvalidArgument for an undefined tensor; DTypeError for bf16; Error if the file cannot
/// be written.
GANTRY_API void save_npy(const std::filesystem::path& path, const Tensor& self);

/// Reads a NumPy file: versions 1 to 3, row-major and column-major, of either byte order.
///
/// The file need not be trusted: the header is checked against the file's size before anything is
/// allocated. A column-major array becomes a tensor with column-major strides.
/// DTypes: NumPy's bool, int8 to int64, uint8 and float16 to float64. `options.dtype` converts.
/// Device/stream: as save_npy. Default device: the CPU.
/// Throws: Error, with the file and the reason, for a file that cannot be read, is malformed, or
/// has bytes after the array; DTypeError for other types; ShapeError for more than 8 dims; as
/// empty() for the options.
[[nodiscard]] GANTRY_API Tensor load_npy(const std::filesystem::path& path,
                                         const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor load_npy(const std::filesystem::path& path, T option) {
  return load_npy(path, detail::only(option));
}

/// The bytes of the file that save_npy() writes. Throws: as save_npy.
[[nodiscard]] GANTRY_API std::vector<std::byte> to_npy(const Tensor& self);

/// As load_npy(), from bytes in memory. Aliasing: a copy.
[[nodiscard]] GANTRY_API Tensor from_npy(std::span<const std::byte> bytes,
                                         const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor from_npy(std::span<const std::byte> bytes, T option) {
  return from_npy(bytes, detail::only(option));
}

}  // namespace gantry
