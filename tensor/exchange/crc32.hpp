// The checksum of zip archives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gantry::detail {

// CRC-32 with the polynomial 0x04C11DB7, reflected, as in ISO 3309, zip and PNG.
class Crc32 {
 public:
  void add(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint32_t value() const { return ~state_; }

 private:
  std::uint32_t state_ = 0xFFFFFFFF;
};

}  // namespace gantry::detail
