// Which process: a pid alone may belong to another one by now.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gantry {

/// A process of this machine; the start time tells it from a later one with the same number.
struct ProcessStamp {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  ///< clock ticks since boot

  friend bool operator==(const ProcessStamp&, const ProcessStamp&) = default;
};

/// The calling process. Cheap after its first call.
/// Throws: Error that names the cause if the system does not tell.
[[nodiscard]] ProcessStamp this_process();

/// The process that has this number now; none if there is none or the system does not tell.
[[nodiscard]] std::optional<ProcessStamp> find_process(std::int32_t pid) noexcept;

/// The state of a process. `ended` holds for zombies too, once no thread of theirs is left.
enum class Liveness { running, stopped, ended, unknown };

struct ProcessStatus {
  Liveness liveness = Liveness::unknown;
  int error = 0;  ///< errno of the question that failed, if `unknown`
};

// Note [Alive, ended or unknown]
// A query about another process can fail because of the caller: it may have no descriptors or no
// memory left. Such a failure says nothing about the other process. Every query about a death
// therefore ends in status_of(), which has a third answer: `unknown` never counts as a death.
// Without a free descriptor, kill(pid, 0) still detects that no process has the number.

/// Asks the system about that very process.
[[nodiscard]] ProcessStatus status_of(const ProcessStamp& process) noexcept;
/// True if that very process is known to have ended, reaped or not.
[[nodiscard]] bool has_ended(const ProcessStamp& process) noexcept;
/// True if that very process is known to be stopped, by a signal or a debugger.
[[nodiscard]] bool is_stopped(const ProcessStamp& process) noexcept;

/// This machine's boot: two processes with the same text run on the same kernel.
[[nodiscard]] std::string boot_id();

}  // namespace gantry
