// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gantry::replay {

/// "15.9 GiB", "512 B".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);
/// "24.1 ns", "3.42 µs", "1.20 ms".
[[nodiscard]] std::string time_text(double nanoseconds);
/// "1,234,567".
[[nodiscard]] std::string count_text(std::uint64_t count);
/// "2.1 %".
[[nodiscard]] std::string percent_text(double share);
/// "1 pass", "5 passes": the count and its noun.
[[nodiscard]] std::string plural(std::uint64_t count, std::string_view one, std::string_view many);

}  // namespace gantry::replay
