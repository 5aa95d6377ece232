// The program gantry-snapshot, which makes pages and pickles from JSON snapshots.
#pragma once

#include <filesystem>

namespace gantry::memory {

/// Returns the folder of gantry's programs: bin beside the folder of gantry's library. Where gantry
/// is linked statically, bin beside the folder of the program. Empty if the system does not tell.
[[nodiscard]] std::filesystem::path own_bin_folder();

/// Returns the path of gantry-snapshot: GANTRY_SNAPSHOT_TOOL, else in `bin`, else in PATH.
/// Throws: Error with the searched places and the remedy.
[[nodiscard]] std::filesystem::path find_snapshot_tool(
    const std::filesystem::path& bin = own_bin_folder());

/// Runs `tool`, which reads a JSON snapshot from the file descriptor `json` and writes `output`.
/// The extension of `output` selects the format. Waits until the program has ended.
/// Thread safety: any thread. Throws: Error with the program's own message.
void run_snapshot_tool(const std::filesystem::path& tool, int json,
                       const std::filesystem::path& output);

}  // namespace gantry::memory
