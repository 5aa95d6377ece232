// Which process: a pid alone may belong to another one by now.
#pragma once

#include <cstdint>

namespace gantry::memory {

/// A process of this machine, since it was started.
struct ProcessStamp {
  std::uint32_t pid = 0;
  std::uint64_t start_time = 0;  ///< clock ticks since boot

  friend bool operator==(const ProcessStamp&, const ProcessStamp&) = default;
};

/// The calling process.
[[nodiscard]] ProcessStamp this_process();
/// True if that very process still runs.
[[nodiscard]] bool is_running(const ProcessStamp& process);

}  // namespace gantry::memory
