// SHA-256 digests.
#pragma once

#include <string>
#include <string_view>

namespace gantry {

/// The SHA-256 digest of `data` as 64 hexadecimal digits. Source: FIPS 180-4.
[[nodiscard]] std::string sha256_hex(std::string_view data);

}  // namespace gantry
