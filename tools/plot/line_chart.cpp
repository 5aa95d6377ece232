#include "tools/plot/line_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/text/escaped_text.hpp"
#include "tools/plot/svg.hpp"

namespace gantry::plot {

namespace {

constexpr double kWidth = 1080;
constexpr double kMargin = 28;
constexpr double kLegendLine = 20;
constexpr double kColumnWidth = 512;
constexpr double kRowHeight = 330;
constexpr double kPlotLeft = 58;  // of a panel: room for the values
constexpr double kPlotTop = 40;
constexpr double kPlotWidth = kColumnWidth - kPlotLeft - 20;
constexpr double kPlotHeight = kRowHeight - kPlotTop - 56;

constexpr const char* kStyle = R"(
  text { font-family: system-ui, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; fill: #1f2933 }
  .title { font-size: 19px; font-weight: 600 }
  .note { font-size: 12px; fill: #616e7c }
  .panel { font-size: 14px; font-weight: 600 }
  .axis { font-size: 11px; fill: #7b8794 }
  .legend { font-size: 12.5px }
  .grid { stroke: #e4e7eb; stroke-width: 1 }
  .base { stroke: #9aa5b1; stroke-width: 1 }
  polyline { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }
)";

// In dark surroundings.
constexpr const char* kDarkStyle = R"(
  .page { fill: #14181d }
  text { fill: #e6e9ec }
  .note, .axis { fill: #9aa5b1 }
  .grid { stroke: #2a323b }
  .base { stroke: #5a6673 }
)";

// Distinct also for colour-blind readers; later turns are dashed.
constexpr std::array<const char*, 8> kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                              "#e69f00", "#56b4e9", "#7b5ea7", "#4d4d4d"};
constexpr std::array<const char*, 8> kDarkColours{"#4aa3df", "#f28c4b", "#2fc49b", "#e3a0c6",
                                                  "#f0b93f", "#8fd0f5", "#a990d6", "#c3c9cf"};
constexpr double kDot = 2.6;  // radius
constexpr std::array<const char*, 3> kDashes{"", "7 4", "2 4"};

// The colours of lines and dots, as classes.
std::string colour_style(const std::array<const char*, 8>& colours) {
  std::string style;
  for (std::size_t i = 0; i < colours.size(); ++i) {
    style +=
        fmt::format("  .c{0} {{ stroke: {1} }}\n  circle.c{0} {{ fill: {1} }}\n", i, colours[i]);
  }
  return style;
}

std::string style() {
  return fmt::format("{}{}  @media (prefers-color-scheme: dark) {{{}{}  }}\n", kStyle,
                     colour_style(kColours), kDarkStyle, colour_style(kDarkColours));
}

// "0.5", "250", "10,000".
std::string tick_text(double value) {
  std::string text = fmt::format("{:.15g}", value);
  if (value < 1000 || text.find('e') != std::string::npos) return text;
  for (std::size_t at = std::min(text.find('.'), text.size()); at > 3;) {
    at -= 3;
    text.insert(text.begin() + static_cast<std::ptrdiff_t>(at), ',');
  }
  return text;
}

// "8", "64K", "1M".
std::string size_text(double bytes) {
  for (const char* unit : {"", "K", "M", "G"}) {
    if (bytes < 1024) return fmt::format("{:.4g}{}", bytes, unit);
    bytes /= 1024;
  }
  return fmt::format("{:.4g}T", bytes);
}

// One axis: values to positions from 0 to 1, and where its lines are.
class Axis {
 public:
  Axis(double low, double high, bool logarithmic, double base)
      : logarithmic_(logarithmic), base_(base) {
    if (!logarithmic_) {
      low_ = 0;
      const double rough = std::max(high, 1e-9) / 5;
      const double power = std::pow(10, std::floor(std::log10(rough)));
      step_ = 10 * power;
      for (const double factor : {5.0, 2.5, 2.0, 1.0}) {
        if (factor * power >= rough) step_ = factor * power;
      }
      high_ = std::ceil(high / step_ - 1e-9) * step_;
      if (!(high_ > 0)) high_ = step_;
      return;
    }
    low_ = std::floor(log(low) + 1e-9);
    high_ = std::max(std::ceil(log(high) - 1e-9), low_ + 1);
    step_ = std::max(1.0, std::ceil((high_ - low_) / 9));
  }

  double position(double value) const {
    const double at = logarithmic_ ? log(value) : value;
    return (at - low_) / (high_ - low_);
  }
  std::vector<double> ticks() const {
    std::vector<double> values;
    for (double at = low_; at <= high_ + 1e-9; at += step_) {
      values.push_back(logarithmic_ ? std::pow(base_, at) : at);
    }
    return values;
  }

 private:
  double log(double value) const { return std::log(value) / std::log(base_); }

  bool logarithmic_;
  double base_;
  double low_ = 0;
  double high_ = 1;
  double step_ = 1;
};

bool drawable(const Panel& panel, const std::pair<double, double>& point) {
  return point.first > 0 && std::isfinite(point.second) &&
         (panel.logarithmic ? point.second > 0 : point.second >= 0);
}

class Drawing {
 public:
  explicit Drawing(const LineChart& chart) : chart_(chart) {
    for (const Panel& panel : chart.panels) {
      for (const Line& line : panel.lines) {
        if (std::find(names_.begin(), names_.end(), line.name) == names_.end()) {
          names_.push_back(line.name);
        }
      }
    }
  }

  std::string draw() const {
    std::string svg = text_at(kMargin, 36, "title", chart_.title);
    svg += text_at(kMargin, 57, "note", chart_.note);
    double y = 82;
    svg += draw_legend(y);
    for (std::size_t i = 0; i < chart_.panels.size(); ++i) {
      const double x = kMargin + (i % 2 == 0 ? 0 : kColumnWidth);
      svg += draw_panel(chart_.panels[i], x, y + static_cast<double>(i / 2) * kRowHeight);
    }
    const double rows = std::ceil(static_cast<double>(chart_.panels.size()) / 2);
    return document(kWidth, y + rows * kRowHeight + 12, style(), svg);
  }

 private:
  std::size_t number_of(const std::string& name) const {
    return static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  }

  std::string stroke(const std::string& name) const {
    const std::size_t i = number_of(name);
    const char* dash = kDashes[i / kColours.size() % kDashes.size()];
    return fmt::format("class=\"c{}\"{}", i % kColours.size(),
                       *dash == 0 ? "" : fmt::format(" stroke-dasharray=\"{}\"", dash));
  }

  // The least and the largest sizes and values that are drawn.
  struct Range {
    double least_x = std::numeric_limits<double>::infinity();
    double least_y = least_x;
    double most_x = 0;
    double most_y = 0;
  };

  // The sizes of all panels, and the values of those whose axis of values is that of `panel`.
  Range range_beside(const Panel& panel) const {
    Range range;
    for (const Panel& other : chart_.panels) {
      const bool is_equal = other.unit == panel.unit && other.logarithmic == panel.logarithmic;
      for (const Line& line : other.lines) {
        for (const auto& point : line.points) {
          if (!drawable(other, point)) continue;
          range.least_x = std::min(range.least_x, point.first);
          range.most_x = std::max(range.most_x, point.first);
          if (!is_equal) continue;
          range.least_y = std::min(range.least_y, point.second);
          range.most_y = std::max(range.most_y, point.second);
        }
      }
    }
    return range;
  }

  static bool has_points(const Panel& panel) {
    return std::ranges::any_of(panel.lines, [&](const Line& line) {
      return std::ranges::any_of(line.points,
                                 [&](const auto& point) { return drawable(panel, point); });
    });
  }

  // A measured point of a line.
  std::string dot(double x, double y, const std::string& name) const {
    return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" class=\"c{}\"/>\n", x, y, kDot,
                       number_of(name) % kColours.size());
  }

  // The names in lines as wide as the chart; `y` moves below them.
  std::string draw_legend(double& y) const {
    std::string svg;
    double x = kMargin;
    for (const std::string& name : names_) {
      const double width = 46 + 7.1 * static_cast<double>(name.size());
      if (x > kMargin && x + width > kWidth - kMargin) {
        x = kMargin;
        y += kLegendLine;
      }
      svg += fmt::format("<polyline points=\"{:.1f},{:.1f} {:.1f},{:.1f}\" {}/>\n", x, y - 4,
                         x + 24, y - 4, stroke(name));
      svg += dot(x + 12, y - 4, name);
      svg += text_at(x + 30, y, "legend", name);
      x += width;
    }
    y += kLegendLine;
    return svg;
  }

  std::string draw_panel(const Panel& panel, double left, double top) const {
    std::string svg = text_at(left, top + 22, "panel", panel.title);
    svg += text_at(left + kPlotLeft + kPlotWidth, top + 22, "axis", panel.unit, "end");
    if (!has_points(panel)) return svg;
    const Range range = range_beside(panel);
    const Axis sizes(range.least_x, range.most_x, true, 2);
    const Axis values(range.least_y, range.most_y, panel.logarithmic, 10);
    const double x0 = left + kPlotLeft;
    const double bottom = top + kPlotTop + kPlotHeight;
    for (const double tick : values.ticks()) {
      const double y = bottom - values.position(tick) * kPlotHeight;
      svg += line_at(x0, y, x0 + kPlotWidth, y, "grid");
      svg += text_at(x0 - 8, y + 4, "axis", tick_text(tick), "end");
    }
    for (const double tick : sizes.ticks()) {
      const double x = x0 + sizes.position(tick) * kPlotWidth;
      svg += line_at(x, bottom, x, bottom + 4, "base");
      svg += text_at(x, bottom + 18, "axis", size_text(tick), "middle");
    }
    svg += line_at(x0, bottom, x0 + kPlotWidth, bottom, "base");
    svg += text_at(x0 + kPlotWidth / 2, bottom + 36, "axis", "bytes", "middle");
    for (const Line& line : panel.lines) {
      std::string points;
      std::string dots;
      for (const auto& point : line.points) {
        if (!drawable(panel, point)) continue;
        const double x = x0 + sizes.position(point.first) * kPlotWidth;
        const double y = bottom - values.position(point.second) * kPlotHeight;
        points += fmt::format("{:.1f},{:.1f} ", x, y);
        dots += dot(x, y, line.name);
      }
      svg += fmt::format("<g><title>{}</title><polyline points=\"{}\" {}/>\n{}</g>\n",
                         escape_xml(line.name), points, stroke(line.name), dots);
    }
    return svg;
  }

  const LineChart& chart_;
  std::vector<std::string> names_;
};

}  // namespace

std::string line_chart_svg(const LineChart& chart) { return Drawing(chart).draw(); }

}  // namespace gantry::plot
