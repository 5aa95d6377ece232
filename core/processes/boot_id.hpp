// The kernel's name of this boot.
#pragma once

#include <string>

namespace gantry {

/// The text that the kernel made at this boot; boot_id() is another where a test pretends so.
/// Throws: Error if the system does not tell; the next call asks again.
[[nodiscard]] const std::string& kernel_boot_id();

}  // namespace gantry
