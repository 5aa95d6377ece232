// Curves over sizes, in panels side by side.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gantry::plot {

/// One line; equal names have one colour in all panels.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< bytes and value, by growing bytes
};

/// One pair of axes. The axis of sizes is logarithmic.
struct Panel {
  std::string title;
  std::string unit;          ///< of the values
  bool logarithmic = false;  ///< axis of values
  std::vector<Curve> curves;
};

/// What is drawn: panels in rows of two.
struct Picture {
  std::string title;
  std::string note;
  std::vector<Panel> panels;
};

/// The picture as SVG; panels without points stay empty.
[[nodiscard]] std::string curves_svg(const Picture& picture);

}  // namespace gantry::plot
