// Sizes and addresses, rounded up, and sizes at the ends of their types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace gantry {

/// `bytes` rounded up to a multiple of `grain`, a power of two; for sizes near the end of the
/// range, the largest multiple there is.
[[nodiscard]] constexpr std::size_t round_up(std::size_t bytes, std::size_t grain) {
  const std::size_t largest = ~std::size_t{0} / grain * grain;
  return bytes >= largest ? largest : (bytes + grain - 1) / grain * grain;
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
/// `bytes` as a signed count; the largest one for sizes beyond it.
[[nodiscard]] constexpr std::int64_t signed_bytes(std::size_t bytes) {
  constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
  return bytes > static_cast<std::size_t>(kLargest) ? kLargest : static_cast<std::int64_t>(bytes);
}

}  // namespace gantry
