#include "tools/bench/pictures.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/plot/curves.hpp"

namespace gantry::bench {

namespace {

// "NCCL 2.28.9 symmetric, graph".
std::string curve_name(const Report& report, const Row& row) {
  return fmt::format("{} {}, {}", report.library, row.variant, row.mode);
}

using Value = double Row::*;

void add_curves(plot::Panel& panel, const Report& report, const std::string& operation,
                Value value) {
  for (const Row& row : report.rows) {
    if (row.operation != operation || row.batches == 0) continue;
    const std::string name = curve_name(report, row);
    auto at = std::find_if(panel.curves.begin(), panel.curves.end(),
                           [&](const plot::Curve& curve) { return curve.name == name; });
    if (at == panel.curves.end()) at = panel.curves.insert(at, plot::Curve{name, {}});
    at->points.emplace_back(static_cast<double>(row.bytes), row.*value);
  }
}

}  // namespace

std::string report_svg(const Report& report, const std::vector<Report>& others) {
  plot::Picture picture;
  picture.title = "Collectives";
  picture.note = fmt::format("{} × {}, ranks started by {}; time of one call on the slowest rank",
                             report.ranks, report.device, report.launched_by);
  std::vector<std::string> operations;
  for (const Row& row : report.rows) {
    // What has no size has no curve.
    if (row.bytes == 0 || row.batches == 0) continue;
    if (std::find(operations.begin(), operations.end(), row.operation) == operations.end()) {
      operations.push_back(row.operation);
    }
  }
  for (const std::string& operation : operations) {
    plot::Panel latency{operation + ": median time", "µs", true, {}};
    plot::Panel bandwidth{operation + ": bus bandwidth", "GB/s", false, {}};
    add_curves(latency, report, operation, &Row::p50_us);
    add_curves(bandwidth, report, operation, &Row::busbw_gbs);
    for (const Report& other : others) {
      add_curves(latency, other, operation, &Row::p50_us);
      add_curves(bandwidth, other, operation, &Row::busbw_gbs);
    }
    picture.panels.push_back(std::move(latency));
    picture.panels.push_back(std::move(bandwidth));
  }
  return plot::curves_svg(picture);
}

}  // namespace gantry::bench
