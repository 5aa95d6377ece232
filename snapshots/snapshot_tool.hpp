// The program gantry-snapshot, which makes pages and pickles from JSON snapshots.
#pragma once

#include <filesystem>

#include "core/files/gantry_file.hpp"

namespace gantry::memory {

/// Returns the path of gantry-snapshot. GANTRY_SNAPSHOT_TOOL names it. Otherwise it is searched in
/// ../bin, the same folder and ../../bin of `gantry_file`, then in PATH. What counts is in Note
/// [Code of other users]. Throws: Error with the searched places and the remedy.
[[nodiscard]] std::filesystem::path find_snapshot_tool(
    const std::filesystem::path& gantry_file = gantry_file());

/// Runs `tool`, which reads a JSON snapshot from the file descriptor `json` and writes `output`.
/// The extension of `output` selects the format. Waits until the program has ended.
/// Thread safety: any thread. Throws: Error with the program's own message.
void run_snapshot_tool(const std::filesystem::path& tool, int json,
                       const std::filesystem::path& output);

}  // namespace gantry::memory
