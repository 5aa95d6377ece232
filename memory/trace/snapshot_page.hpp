// The page that shows a snapshot; its sources are in memory/viewer.
#pragma once

#include <string_view>

namespace gantry::memory {

/// The data goes between the two.
extern const std::string_view kSnapshotPageHead;
extern const std::string_view kSnapshotPageTail;

}  // namespace gantry::memory
