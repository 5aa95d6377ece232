#include "tools/bench/charts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/plot/line_chart.hpp"

namespace gantry::bench {

namespace {

// "NCCL 2.28.9 symmetric, graph".
std::string line_name(const Report& report, const Row& row) {
  return fmt::format("{} {}, {}", report.library, row.variant, row.mode);
}

using Value = double Row::*;

void add_lines(plot::Panel& panel, const Report& report, const std::string& operation,
               Value value) {
  for (const Row& row : report.rows) {
    if (row.operation != operation || row.batches == 0) continue;
    const std::string name = line_name(report, row);
    auto at = std::find_if(panel.lines.begin(), panel.lines.end(),
                           [&](const plot::Line& line) { return line.name == name; });
    if (at == panel.lines.end()) at = panel.lines.insert(at, plot::Line{name, {}});
    at->points.emplace_back(static_cast<double>(row.bytes), row.*value);
  }
}

}  // namespace

std::string report_svg(const Report& report, const std::vector<Report>& others) {
  plot::LineChart chart;
  chart.title = "Collectives";
  chart.note = fmt::format("{} × {}, ranks started by {}; time of one call on the slowest rank",
                           report.ranks, report.device, report.launched_by);
  std::vector<std::string> operations;
  for (const Row& row : report.rows) {
    // A row without a size has no line.
    if (row.bytes == 0 || row.batches == 0) continue;
    if (std::find(operations.begin(), operations.end(), row.operation) == operations.end()) {
      operations.push_back(row.operation);
    }
  }
  for (const std::string& operation : operations) {
    plot::Panel latency{operation + ": median time", "µs", true, {}};
    plot::Panel bandwidth{operation + ": bus bandwidth", "GB/s", false, {}};
    add_lines(latency, report, operation, &Row::p50_us);
    add_lines(bandwidth, report, operation, &Row::busbw_gbs);
    for (const Report& other : others) {
      add_lines(latency, other, operation, &Row::p50_us);
      add_lines(bandwidth, other, operation, &Row::busbw_gbs);
    }
    chart.panels.push_back(std::move(latency));
    chart.panels.push_back(std::move(bandwidth));
  }
  return plot::line_chart_svg(chart);
}

}  // namespace gantry::bench
