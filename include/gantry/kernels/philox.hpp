#pragma once

#include <cstdint>

#include <gantry/core/macros.hpp>

namespace gantry {

/// One block of random bits: four 32-bit words.
/// @since 0.1
struct Philox4 {
  /// The words, lowest counter word first.
  /// @{
  std::uint32_t x, y, z, w;
  /// @}
};

/// Philox4x32-10, a counter-based random generator: a pure function of key and counter.
///
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
/// The key is the seed, low word first. The counter is {block low, block high, offset low, offset
/// high}. Element i of a tensor takes word i % 4 of block i / 4. The offset is the number of
/// earlier draws from the generator. Element i therefore depends on (seed, offset, i) only.
/// @since 0.1
[[nodiscard]] GANTRY_HD inline Philox4 philox4x32_10(std::uint64_t seed, std::uint64_t block,
                                                     std::uint64_t offset) noexcept {
  std::uint32_t key0 = static_cast<std::uint32_t>(seed);
  std::uint32_t key1 = static_cast<std::uint32_t>(seed >> 32);
  Philox4 c{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
            static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = static_cast<std::uint64_t>(0xD2511F53u) * c.x;
    const std::uint64_t product1 = static_cast<std::uint64_t>(0xCD9E8D57u) * c.z;
    c = {static_cast<std::uint32_t>(product1 >> 32) ^ c.y ^ key0,
         static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ c.w ^ key1,
         static_cast<std::uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

/// The place of a draw: a seed and an offset, as `Generator::reserve()` returns them for a kernel.
///
/// A captured kernel has the same arguments at each replay, while each replay draws at another
/// place. Such a kernel reads its place from device memory, by resolved().
/// @since 0.3
struct PhiloxPosition {
  std::uint64_t seed = 0;    ///< key of the generator; unused if `replay` is set
  std::uint64_t offset = 0;  ///< number of earlier draws; if `replay` is set, of the same replay
  /// Device memory with the seed and the offset of a replay; null for work that is not captured.
  const std::uint64_t* replay = nullptr;

  /// The seed and the offset, as a running kernel finds them. `replay` is null in the result.
  [[nodiscard]] GANTRY_HD PhiloxPosition resolved() const noexcept {
    if (replay == nullptr) return *this;
    return {replay[0], replay[1] + offset};
  }
};

}  // namespace gantry
