// Memory that gantry takes from the driver past its allocators, for the report of an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gantry::memory {

/// Notes `bytes` at `data` that the driver gave for `purpose`. Without host memory it notes
/// nothing.
void note_direct_memory(int device, const void* data, std::size_t bytes,
                        std::string_view purpose) noexcept;
/// Forgets what was noted at `data`, which goes back to the driver.
void forget_direct_memory(const void* data) noexcept;
/// The bytes that are noted for `device`, by purpose, the largest first.
[[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> direct_memory(int device);

}  // namespace gantry::memory
