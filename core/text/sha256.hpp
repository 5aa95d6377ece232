// SHA-256 digests.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace gantry {

/// The SHA-256 digest of `data`. Source: FIPS 180-4.
[[nodiscard]] std::array<unsigned char, 32> sha256(std::string_view data);
/// The digest as 64 hexadecimal digits.
[[nodiscard]] std::string sha256_hex(std::string_view data);

}  // namespace gantry
