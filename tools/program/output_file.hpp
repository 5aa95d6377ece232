// Files that a program writes when it has measured.
#pragma once

#include <string>

namespace gantry {

/// Says before the measurement if its results could not be written. Leaves what is there as it is.
/// Throws: Error.
void check_output(const std::string& path);

/// Gives a file its new text at once: it never holds less than the old one. Throws: Error.
void write_output(const std::string& path, const std::string& text);

}  // namespace gantry
