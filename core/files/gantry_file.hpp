// The file that this code is in.
#pragma once

#include <filesystem>

namespace gantry {

/// Returns the file that contains this code: gantry's library, or the program where gantry is
/// linked statically. Absolute, whatever the current directory is; empty if the system does not
/// tell.
[[nodiscard]] std::filesystem::path gantry_file();

}  // namespace gantry
