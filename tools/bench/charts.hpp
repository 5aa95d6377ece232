// Draws results.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/report.hpp"

namespace gantry::bench {

/// Latency and bandwidth against size, one row of panels per operation of the first report; the
/// other reports' lines beside it.
[[nodiscard]] std::string report_svg(const Report& report, const std::vector<Report>& others);

}  // namespace gantry::bench
