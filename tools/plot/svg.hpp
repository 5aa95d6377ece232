// Pieces of SVG text.
#pragma once

#include <string>
#include <string_view>

namespace gantry::plot {

/// One line of text; `anchor` is start, middle or end.
[[nodiscard]] std::string text_at(double x, double y, std::string_view css,
                                  std::string_view content, std::string_view anchor = "start");
[[nodiscard]] std::string line_at(double x1, double y1, double x2, double y2, std::string_view css);
/// The elements of a chart, with its size and style. The style gives class "page", the background,
/// a colour in dark surroundings; in light ones it is white.
[[nodiscard]] std::string document(double width, double height, std::string_view style,
                                   std::string_view elements);

}  // namespace gantry::plot
