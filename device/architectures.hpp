// Which devices the kernels of this build run on.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gantry {

/// Returns true if code for one of `built` runs on a device of compute capability `major`.`minor`.
///
/// `built` holds the names of arch_list(). Machine code (`sm_`) runs on the same major version and
/// on no smaller minor version. PTX (`compute_`) runs on every capability that is not smaller.
/// Architecture-specific code (`sm_90a`) runs on that capability only, family-specific code
/// (`sm_100f`) within its major version.
[[nodiscard]] bool has_code_for(std::span<const std::string> built, int major, int minor);

/// Returns the sentence for a device that has_code_for() refuses: its name, its architecture, what
/// was built, and the option that adds code.
[[nodiscard]] std::string missing_code_text(std::span<const std::string> built, int device,
                                            std::string_view name, int major, int minor);

}  // namespace gantry
