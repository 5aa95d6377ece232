#include "tools/replay/format.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace gantry::replay {
namespace {

// Three significant digits.
std::string short_number(double value) {
  if (value >= 99.95) return fmt::format("{:.0f}", value);
  return value >= 9.995 ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value);
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1023.5 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{} {}", short_number(value), kUnits[unit]);
}

std::string time_text(double nanoseconds) {
  if (nanoseconds < 999.5) return fmt::format("{} ns", short_number(nanoseconds));
  if (nanoseconds < 999.5e3) return fmt::format("{} µs", short_number(nanoseconds / 1e3));
  return fmt::format("{} ms", short_number(nanoseconds / 1e6));
}

std::string count_text(std::uint64_t count) {
  std::string digits = fmt::format("{}", count);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

std::string percent_text(double share) {
  // No "-0.0 %".
  return fmt::format("{:.1f} %", std::abs(share) < 0.0005 ? 0.0 : share * 100);
}

std::string plural(std::uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count_text(count), count == 1 ? one : many);
}

}  // namespace gantry::replay
