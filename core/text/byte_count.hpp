// Numbers of bytes for people.
#pragma once

#include <cstdint>
#include <string>

namespace gantry {

/// `bytes` with a unit: "512 bytes", "1.50 KiB", "20.00 MiB", "1.95 GiB".
[[nodiscard]] std::string format_bytes(std::int64_t bytes);

}  // namespace gantry
