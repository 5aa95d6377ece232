// Which process: a pid alone may belong to another one by now.
#pragma once

#include <cstdint>
#include <string>

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
/// True if that very process is stopped, by a signal or a debugger.
[[nodiscard]] bool is_stopped(const ProcessStamp& process);

/// This machine's boot: two processes with the same text run on the same kernel.
[[nodiscard]] std::string boot_id();

}  // namespace gantry
