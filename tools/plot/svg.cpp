#include "tools/plot/svg.hpp"

#include <fmt/format.h>

#include "core/text/escaped_text.hpp"

namespace gantry::plot {

std::string text_at(double x, double y, std::string_view css, std::string_view content,
                    std::string_view anchor) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n",
                     x, y, css, anchor, escape_xml(content));
}

std::string line_at(double x1, double y1, double x2, double y2, std::string_view css) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2,
      y2, css);
}

std::string document(double width, double height, std::string_view style,
                     std::string_view elements) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n<style>\n  .page {{ fill: #ffffff }}{2}</style>\n"
      "<rect width=\"100%\" height=\"100%\" class=\"page\"/>\n{3}</svg>\n",
      width, height, style, elements);
}

}  // namespace gantry::plot
