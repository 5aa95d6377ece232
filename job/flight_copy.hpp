// Copies of flight files, taken while their ranks write.
#pragma once

#include <cstddef>
#include <optional>

namespace gantry::flight {

/// Private memory that a View can look at.
struct Copy {
  void* base = nullptr;
  std::size_t bytes = 0;
};

/// Copies the flight file behind `descriptor`: its header and ranks, and the rest if `whole`. None
/// if it is no regular file that holds a whole flight file of this version.
[[nodiscard]] std::optional<Copy> copy_file(int descriptor, bool whole);
void free_copy(const Copy& copy) noexcept;

}  // namespace gantry::flight
