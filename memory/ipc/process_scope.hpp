// The conditions under which two processes can share memory.
#pragma once

#include <cstdint>

#include "core/process_stamp.hpp"

namespace gantry::memory {

/// A process with its machine, namespaces and user. Two processes share memory only if all but the
/// process are equal.
struct ProcessScope {
  ProcessStamp process;
  std::uint64_t machine = 0;  ///< hash of the kernel's boot id: one boot of one machine
  std::uint64_t pid_namespace = 0;
  std::uint64_t net_namespace = 0;
  std::uint32_t user = 0;

  friend bool operator==(const ProcessScope&, const ProcessScope&) = default;
};

/// Returns the scope of the calling process.
[[nodiscard]] ProcessScope this_process_scope();

/// Throws: NotSupported, with the remedy, if this process cannot share memory with `exporter`;
/// PeerLostError if the exporter has ended.
void check_reachable(const ProcessScope& exporter);

/// Throws: PeerLostError if `exporter` has ended.
void check_running(const ProcessStamp& exporter);

}  // namespace gantry::memory
