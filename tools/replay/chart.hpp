// Draws what a replay found.
#pragma once

#include <string>

#include "tools/replay/report.hpp"

namespace gantry::replay {

/// One row per backend: live and reserved memory over the first pass, and the time per operation.
[[nodiscard]] std::string chart_svg(const Report& report);
/// The same as a page of its own.
[[nodiscard]] std::string chart_html(const Report& report);

}  // namespace gantry::replay
