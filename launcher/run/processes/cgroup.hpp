#pragma once

#include <cstdint>
#include <optional>

namespace gantry::launcher {

/// How many processes of this control group the kernel has killed for want of memory; none where
/// that cannot be read.
[[nodiscard]] std::optional<std::int64_t> oom_kills();

}  // namespace gantry::launcher
