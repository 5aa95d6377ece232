// Snapshots as JSON text.
#pragma once

#include <istream>
#include <ostream>
#include <string_view>

#include <gantry/memory/snapshot.hpp>

namespace gantry::memory {

/// Writes everything in `snapshot`: read_json returns an equal one.
void write_json(const Snapshot& snapshot, std::ostream& out);
/// Reads what write_json wrote. `name` is the file's name in errors. Throws: InvalidArgument.
[[nodiscard]] Snapshot read_json(std::istream& in, std::string_view name);

/// PyTorch's names, the same in all file formats.
[[nodiscard]] std::string_view name_of(TraceAction action);
[[nodiscard]] std::string_view name_of(BlockState state);

}  // namespace gantry::memory
