// The page without its data; made from viewer/ by viewer/embed.cmake.
#pragma once

#include <string_view>

namespace gantry::snapshot {

/// The text before and after a snapshot's data.
extern const std::string_view kPageHead;
extern const std::string_view kPageTail;

}  // namespace gantry::snapshot
