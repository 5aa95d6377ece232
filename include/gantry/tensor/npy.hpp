#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/tensor/options.hpp>
#include <gantry/tensor/safetensors.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// Writes a tensor to a NumPy file (`.npy`), which numpy.load() reads.
///
/// The file is replaced atomically: after an error the previous file is unchanged. Dense
/// column-major tensors are written as such (`fortran_order`), all others in row-major order.
/// DTypes: all but bf16 and 8-bit floats, which NumPy does not have.
/// Device/stream: current stream of the tensor's device; the host blocks. Device memory passes
/// through page-locked buffers of 8 MiB.
/// Throws: InvalidArgument for an undefined tensor; DTypeError for another dtype; Error if the file
/// cannot be written.
/// @code
/// save_npy("x.npy", ones({2, 3}));
/// const Tensor x = load_npy("x.npy");
/// @endcode
/// @since 0.3
GANTRY_API void save_npy(const std::filesystem::path& path, const Tensor& self);

/// Reads a NumPy file: versions 1 to 3, row-major and column-major, of either byte order.
///
/// The file need not be trusted: the header is checked against the file's size before anything is
/// allocated. A column-major array becomes a tensor with column-major strides.
/// DTypes: NumPy's bool, int8 to int64, uint8 to uint64 and float16 to float64. `options.dtype`
/// converts. Device/stream: as save_npy. Default device: the CPU. Throws: Error, with the file and
/// the reason, for a file that cannot be read, is malformed, or has bytes after the array;
/// DTypeError for other types; ShapeError for more than 8 dims; as empty() for the options.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor load_npy(const std::filesystem::path& path,
                                         const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor load_npy(const std::filesystem::path& path, T option) {
  return load_npy(path, detail::only(option));
}

/// The bytes of the file that save_npy() writes. Throws: as save_npy.
/// @since 0.3
[[nodiscard]] GANTRY_API std::vector<std::byte> to_npy(const Tensor& self);

/// As load_npy(), from bytes in memory. Aliasing: a copy.
/// @since 0.3
[[nodiscard]] GANTRY_API Tensor from_npy(std::span<const std::byte> bytes,
                                         const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor from_npy(std::span<const std::byte> bytes, T option) {
  return from_npy(bytes, detail::only(option));
}

/// Writes tensors to a NumPy archive (`.npz`), as numpy.savez() does: entry `name.npy` of each. Its
/// entries are not compressed.
///
/// The file is replaced atomically. Otherwise as save_npy(), for each tensor. Device memory is read
/// twice, since the checksum of an entry stands before it.
/// Throws: as save_npy(), also for a name that is no UTF-8 or has more than 65,531 bytes.
/// @since 0.3
GANTRY_API void save_npz(const std::filesystem::path& path, const NamedTensors& tensors);

/// Reads all arrays of a NumPy archive, by their names without `.npy`. An archive of
/// numpy.savez_compressed() is refused.
///
/// The file need not be trusted: before anything is allocated for tensors, directory, headers and
/// checksums are checked. Otherwise as load_npy(), for each array.
/// Throws: as load_npy(); Error for an archive that is malformed, compressed, encrypted or split,
/// for an entry that is no array, and for one whose checksum is wrong.
/// @since 0.3
[[nodiscard]] GANTRY_API NamedTensors load_npz(const std::filesystem::path& path,
                                               const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] NamedTensors load_npz(const std::filesystem::path& path, T option) {
  return load_npz(path, detail::only(option));
}

}  // namespace gantry
