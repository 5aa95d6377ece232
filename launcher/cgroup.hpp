#pragma once

#include <cstdint>
#include <optional>

namespace gantry::launcher {

/// CPUs that this process may use: its affinity mask, cut by the control group's quota; at least 1.
[[nodiscard]] int allowed_cpus();

/// How many processes of this control group the kernel has killed for want of memory; none where
/// that cannot be read.
[[nodiscard]] std::optional<std::int64_t> oom_kills();

}  // namespace gantry::launcher
