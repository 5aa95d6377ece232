// A snapshot as a page for a browser.
#pragma once

#include <ostream>

#include <gantry/memory/snapshot.hpp>

namespace gantry::snapshot {

/// Writes a page that shows `snapshot`, without references to anything outside the file.
void write_page(const memory::Snapshot& snapshot, std::ostream& out);

}  // namespace gantry::snapshot
