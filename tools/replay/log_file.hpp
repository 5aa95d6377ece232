// Logs of allocations that other programs wrote.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tools/replay/allocation_sequence.hpp"
#include "tools/snapshot/json_document.hpp"

namespace gantry::replay {

/// True for the CSV log of RMM's logging adaptor, by its first line.
[[nodiscard]] bool is_rmm_log(std::string_view text);
/// True for the log of RMM itself (rmm_log.txt), which is of no use here.
[[nodiscard]] bool is_rmm_debug_log(std::string_view text);
/// Reads the CSV log of RMM's logging adaptor: Thread,Time,Action,Pointer,Size,Stream with the
/// actions allocate, free or deallocate, and "allocate failure" (ignored). Logs of RMM 0.14 have no
/// column Thread. A last line without an end that makes no sense is counted and left out.
/// Throws: InvalidArgument with the line.
[[nodiscard]] AllocationSequence read_rmm_log(std::string_view text, const std::string& name);

/// The history of one device of a memory snapshot (torch's schema). Blocks that were live before
/// the history began are allocated first. Without `device`: the first one that has a history.
/// Throws: InvalidArgument that says what is missing.
[[nodiscard]] AllocationSequence read_snapshot(const snapshot::JsonDocument& document,
                                               const std::string& name,
                                               std::optional<int> device = std::nullopt);

/// Reads a log of any known kind, told apart by its first bytes: a dump of ours, a snapshot as
/// pickle or JSON, a RMM log. Throws: InvalidArgument; Error if the file cannot be read.
[[nodiscard]] AllocationSequence read_log(const std::string& path,
                                          std::optional<int> device = std::nullopt);

}  // namespace gantry::replay
