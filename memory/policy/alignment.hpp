// Addresses that are multiples of a power of two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <gantry/core/error.hpp>

namespace gantry::memory {

/// True if `alignment` is a power of two up to `grain`, which is one. It costs one branch.
[[nodiscard]] constexpr bool divides_grain(std::size_t alignment, std::size_t grain) {
  return ((alignment & (alignment - 1)) | ((alignment - 1) / grain)) == 0;
}
/// Throws: InvalidArgument, naming `allocate`, unless `alignment` is a power of two.
inline void check_alignment(std::size_t alignment) {
  // Not std::has_single_bit: without an instruction for it, that is a call.
  if (alignment != 0 && (alignment & (alignment - 1)) == 0) return;
  throw InvalidArgument("allocate: expected an alignment that is a power of two, but got " +
                        std::to_string(alignment));
}

/// Bytes from `data` to the next address that is a multiple of `alignment`, a power of two.
[[nodiscard]] inline std::size_t padding_of(const void* data, std::size_t alignment) {
  return (std::size_t{0} - reinterpret_cast<std::uintptr_t>(data)) & (alignment - 1);
}
/// The first address from `data` on that is a multiple of `alignment`, a power of two.
[[nodiscard]] inline std::byte* align_up(void* data, std::size_t alignment) {
  return static_cast<std::byte*>(data) + padding_of(data, alignment);
}

/// The sum of two sizes; the largest size if that is larger.
[[nodiscard]] constexpr std::size_t add_saturated(std::size_t a, std::size_t b) {
  return a > ~b ? ~std::size_t{0} : a + b;
}

}  // namespace gantry::memory
