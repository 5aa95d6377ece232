// Where a process lives, as far as sharing memory with it goes.
#pragma once

#include <cstdint>

#include "core/process_stamp.hpp"

namespace gantry::memory {

/// A process and the walls around it.
struct IpcOrigin {
  ProcessStamp process;
  std::uint64_t machine = 0;  ///< which boot of which machine
  std::uint64_t pid_namespace = 0;
  std::uint64_t net_namespace = 0;
  std::uint32_t user = 0;

  friend bool operator==(const IpcOrigin&, const IpcOrigin&) = default;
};

/// The calling process's.
[[nodiscard]] IpcOrigin this_origin();

/// Throws: NotSupported, with the remedy, if a wall stands between `exporter` and this process;
/// PeerLostError if the exporter is gone.
void check_reachable(const IpcOrigin& exporter);

/// Throws: PeerLostError if `exporter` is gone.
void check_running(const ProcessStamp& exporter);

}  // namespace gantry::memory
