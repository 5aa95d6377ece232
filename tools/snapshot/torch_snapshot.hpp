// Snapshots in torch's schema, as data.
#pragma once

#include <gantry/memory/snapshot.hpp>

#include "tools/snapshot/json_document.hpp"

namespace gantry::snapshot {

/// The snapshot that `document` holds in the schema of torch.cuda.memory._dump_snapshot. Keys that
/// some versions of torch do not write may be missing; unknown keys and events are ignored.
/// Throws: InvalidArgument that says what is wrong.
[[nodiscard]] memory::Snapshot read_torch_snapshot(const JsonDocument& document);

}  // namespace gantry::snapshot
