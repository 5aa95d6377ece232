#include "tensor/exchange/crc32.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace gantry::detail {

namespace {

constexpr std::size_t kStep = 8;
using Table = std::array<std::uint32_t, 256>;

// Entry b of table k is the state after byte b and k zero bytes.
constexpr std::array<Table, kStep> kTables = [] {
  std::array<Table, kStep> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t state = b;
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ ((state & 1) != 0 ? 0xEDB88320 : 0);
    tables[0][b] = state;
  }
  for (std::size_t k = 1; k < kStep; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t before = tables[k - 1][b];
      tables[k][b] = before >> 8 ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}();

static_assert(std::endian::native == std::endian::little, "bytes are taken as numbers");

}  // namespace

void Crc32::add(std::span<const std::byte> bytes) {
  std::uint32_t state = state_;
  while (bytes.size() >= kStep) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), kStep);
    word ^= state;
    state = 0;
    for (std::size_t i = 0; i < kStep; ++i) {
      state ^= kTables[kStep - 1 - i][word >> (8 * i) & 0xFF];
    }
    bytes = bytes.subspan(kStep);
  }
  for (const std::byte byte : bytes) {
    state = state >> 8 ^ kTables[0][(state ^ static_cast<std::uint32_t>(byte)) & 0xFF];
  }
  state_ = state;
}

}  // namespace gantry::detail
