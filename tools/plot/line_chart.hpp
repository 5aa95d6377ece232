// Line charts over sizes, in panels side by side.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gantry::plot {

/// One line with a dot at each point; equal names have one colour in all panels.
struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< bytes and value, by growing bytes
};

/// One pair of axes. The axis of sizes is logarithmic. Panels of one unit have equal axes of
/// values, and all panels have equal axes of sizes, so that they can be compared.
struct Panel {
  std::string title;
  std::string unit;          ///< of the values
  bool logarithmic = false;  ///< axis of values
  std::vector<Line> lines;
};

/// Panels in rows of two.
struct LineChart {
  std::string title;
  std::string note;
  std::vector<Panel> panels;
};

/// The chart as SVG; panels without points stay empty.
[[nodiscard]] std::string line_chart_svg(const LineChart& chart);

}  // namespace gantry::plot
