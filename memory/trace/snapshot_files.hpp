// The file formats of snapshots.
#pragma once

#include <istream>
#include <ostream>
#include <string_view>

#include <gantry/memory/snapshot.hpp>

namespace gantry::memory {

/// The schema of torch.cuda.memory._dump_snapshot.
void write_pickle(const Snapshot& snapshot, std::ostream& out);

void write_json(const Snapshot& snapshot, std::ostream& out);
/// Throws: InvalidArgument if it is not what write_json wrote; `name` is in its text.
[[nodiscard]] Snapshot read_json(std::istream& in, std::string_view name);

/// A page without references to anything outside it.
void write_html(const Snapshot& snapshot, std::ostream& out);

/// Torch's names, the same in all formats.
[[nodiscard]] std::string_view name_of(TraceAction action);
[[nodiscard]] std::string_view name_of(BlockState state);

}  // namespace gantry::memory
