#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.hpp"

namespace gantry::launcher {

/// Parses the arguments after the program name.
/// Throws: InvalidArgument with a text for the user.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

}  // namespace gantry::launcher
