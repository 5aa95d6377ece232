// A snapshot as PyTorch's pickle.
#pragma once

#include <ostream>

#include <gantry/memory/snapshot.hpp>

namespace gantry::snapshot {

/// Writes `snapshot` with the keys of torch.cuda.memory._dump_snapshot, in the same places.
void write_pickle(const memory::Snapshot& snapshot, std::ostream& out);

}  // namespace gantry::snapshot
