// Snapshots as JSON text.
#pragma once

#include <filesystem>
#include <istream>
#include <ostream>
#include <string_view>

#include <gantry/memory/snapshot.hpp>

namespace gantry::memory {

/// Writes everything in `snapshot`: read_json returns an equal one.
void write_json(const Snapshot& snapshot, std::ostream& out);
/// Reads what write_json wrote. `name` is the file's name in errors, which begin with `prefix`.
/// Throws: InvalidArgument if the text is no snapshot; Error if it cannot be read.
[[nodiscard]] Snapshot read_json(std::istream& in, std::string_view name,
                                 std::string_view prefix = {});
/// As read_json, from a file.
[[nodiscard]] Snapshot read_json_file(const std::filesystem::path& path,
                                      std::string_view prefix = {});

/// Returns PyTorch's name of an enumerator, which all file formats use.
[[nodiscard]] std::string_view name_of(TraceAction action);
[[nodiscard]] std::string_view name_of(BlockState state);

}  // namespace gantry::memory
