// The limit of open files of this process.
#pragma once

#include <cstddef>
#include <string>

namespace gantry {

/// Raises the limit to the hard limit if fewer than `count` descriptors can still be opened.
/// Returns true if as many can be opened afterwards.
bool make_room_for_descriptors(std::size_t count) noexcept;

/// "the limit of open files is 1024; raise it (ulimit -n)".
[[nodiscard]] std::string descriptor_limit_text();

}  // namespace gantry
