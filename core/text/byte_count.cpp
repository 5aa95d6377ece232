#include "core/text/byte_count.hpp"

#include <fmt/format.h>

namespace gantry {

std::string format_bytes(std::int64_t bytes) {
  constexpr std::int64_t kKib = 1024;
  const auto value = static_cast<double>(bytes);
  if (bytes < kKib) return fmt::format("{} bytes", bytes);
  if (bytes < kKib * kKib) return fmt::format("{:.2f} KiB", value / 1024);
  if (bytes < kKib * kKib * kKib) return fmt::format("{:.2f} MiB", value / (1024 * 1024));
  return fmt::format("{:.2f} GiB", value / (1024.0 * 1024 * 1024));
}

}  // namespace gantry
