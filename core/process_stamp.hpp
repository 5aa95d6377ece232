// Which process: a pid alone may belong to another one by now.
#pragma once

#include <cstdint>

namespace gantry {

/// A process of this machine; the start time tells it from a later one with the same number.
struct ProcessStamp {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  ///< clock ticks since boot

  friend bool operator==(const ProcessStamp&, const ProcessStamp&) = default;
};

/// The calling process. Cheap after a thread's first call.
[[nodiscard]] ProcessStamp this_process();
/// True if that very process still runs; false once it has ended, reaped or not.
[[nodiscard]] bool is_running(const ProcessStamp& process);

}  // namespace gantry
