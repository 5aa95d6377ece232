// The segments that a snapshot shows.
#pragma once

#include <functional>
#include <vector>

#include "memory/history/history.hpp"

namespace gantry::memory {

/// Returns the segments of the devices' allocators: at most one element per device, in any order.
using SegmentSource = std::function<std::vector<HeldSegments>()>;

/// Sets the function that snapshot() calls for the segments, in place of the one that copies those
/// of the heaps. Returns the previous one.
SegmentSource set_segment_source(SegmentSource source);

}  // namespace gantry::memory
