// Sanitizers that the program has and this build of the library lacks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gantry {

/// Sanitizer runtimes that are loaded into this process.
struct LoadedSanitizers {
  bool thread = false;
  bool address = false;
};

[[nodiscard]] LoadedSanitizers loaded_sanitizers() noexcept;

/// Returns a sentence for each sanitizer in `loaded` that is not in `built_with`, the value of the
/// build's option GANTRY_SANITIZE.
[[nodiscard]] std::vector<std::string> sanitizer_warnings(LoadedSanitizers loaded,
                                                          std::string_view built_with);

/// Logs sanitizer_warnings() of this process and this build.
void warn_of_missing_sanitizers();

}  // namespace gantry
