// Tests that run under an adversarial schedule.
#pragma once

#include <cstdlib>

namespace gantry::testing {

/// True if GANTRY_SIM_SCHEDULE is set. Ranks in several processes then take milliseconds a step:
/// the schedule of one process cannot see what another one waits for.
[[nodiscard]] inline bool is_scheduled() {
  const char* schedule = std::getenv("GANTRY_SIM_SCHEDULE");
  return schedule != nullptr && *schedule != '\0';
}

}  // namespace gantry::testing
