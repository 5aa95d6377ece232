#include "tools/replay/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/text/escaped_text.hpp"
#include "tools/plot/svg.hpp"
#include "tools/program/content_policy.hpp"
#include "tools/replay/format.hpp"

namespace gantry::replay {
namespace {

using plot::line_at;
using plot::text_at;

constexpr double kWidth = 1040;
constexpr double kHeadHeight = 118;
constexpr double kRowHeight = 132;
constexpr double kErrorRowHeight = 44;
constexpr double kPlotHeight = 96;
constexpr double kPlotLeft = 208;
constexpr double kPlotWidth = 520;
constexpr double kBarLeft = 776;
constexpr double kBarWidth = 150;

constexpr const char* kStyle = R"(
  text { font-family: system-ui, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; fill: #1f2933 }
  .title { font-size: 19px; font-weight: 600 }
  .note { font-size: 12px; fill: #616e7c }
  .name { font-size: 15px; font-weight: 600 }
  .figure { font-size: 12.5px }
  .bad { font-size: 12.5px; fill: #b42318; font-weight: 600 }
  .axis { font-size: 11px; fill: #7b8794 }
  .grid { stroke: #e4e7eb; stroke-width: 1 }
  .base { stroke: #9aa5b1; stroke-width: 1 }
  .limit { stroke: #b42318; stroke-width: 1.2; stroke-dasharray: 5 4 }
  .oom { stroke: #b42318; stroke-width: 1.6 }
  .reserved { fill: #f6d6ad; stroke: #d98324; stroke-width: 1.2; stroke-linejoin: round }
  .live { fill: #5a9bd4; fill-opacity: 0.85; stroke: #2b6cb0; stroke-width: 0.8; stroke-linejoin: round }
  .bar { fill: #48a68a }
  .loop { fill: #b8c2cc }
  .cut { stroke: #ffffff; stroke-width: 3 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #14181d }
    .cut { stroke: #14181d }
    text { fill: #e6e9ec }
    .note, .axis { fill: #9aa5b1 }
    .grid { stroke: #2a323b }
    .base { stroke: #5a6673 }
    .bad { fill: #ff8a80 }
    .limit, .oom { stroke: #ff8a80 }
    .reserved { fill: #4d3a1c; stroke: #d98324 }
    .live { fill: #3d78b3; stroke: #7db4e6 }
    .loop { fill: #5a6673 }
  }
)";

// A round step that divides [0, top] into 2 to 4 parts.
double round_step(double top) {
  double unit = 1;
  while (top / unit >= 1024) unit *= 1024;
  const double rough = top / unit / 4;
  const double power = std::pow(10, std::floor(std::log10(std::max(rough, 1e-9))));
  for (const double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    if (factor * power >= rough) return factor * power * unit;
  }
  return 10 * power * unit;
}

// "7.5 GiB", "10 GiB": no zeros that say nothing.
std::string tick_text(double bytes) {
  std::string text = bytes_text(static_cast<std::uint64_t>(bytes));
  const std::size_t space = text.find(' ');
  std::size_t end = space;
  if (text.find('.') < space) {
    while (text[end - 1] == '0') --end;
    if (text[end - 1] == '.') --end;
  }
  return text.erase(end, space - end);
}

class Chart {
 public:
  explicit Chart(const Report& report) : report_(report) {
    for (const ReplayResult& result : report.results) {
      top_ = std::max(top_, static_cast<double>(std::max(result.peak_reserved, result.peak_live)));
      slowest_ = std::max(slowest_, speed(result));
    }
    if (report.limit_bytes) top_ = std::max(top_, static_cast<double>(*report.limit_bytes) * 1.02);
    // A backend that is slower by orders of magnitude would flatten all others: its bar is cut.
    std::vector<double> speeds;
    for (const ReplayResult& result : report.results) {
      if (result.error.empty() && result.backend != "bump") speeds.push_back(speed(result));
    }
    std::sort(speeds.begin(), speeds.end());
    bar_top_ = slowest_;
    for (std::size_t i = 1; i < speeds.size(); ++i) {
      if (speeds[i] > 8 * speeds[i - 1] && speeds[i - 1] > 0) {
        bar_top_ = speeds[i - 1] * 1.25;
        break;
      }
    }
  }

  [[nodiscard]] std::string draw() const {
    double height = kHeadHeight + 12;
    for (const ReplayResult& result : report_.results) height += row_height(result);
    std::string svg = draw_head();
    double y = kHeadHeight;
    for (const ReplayResult& result : report_.results) {
      svg += draw_row(result, y);
      y += row_height(result);
    }
    return plot::document(kWidth, height, kStyle, svg);
  }

 private:
  static double row_height(const ReplayResult& result) {
    return result.error.empty() ? kRowHeight : kErrorRowHeight;
  }
  static double speed(const ReplayResult& result) {
    return result.warm_ns > 0 ? result.warm_ns : result.first_ns;
  }

  [[nodiscard]] std::string draw_head() const {
    std::string svg = text_at(28, 36, "title", report_.sequence);
    svg += text_at(
        28, 58, "note",
        fmt::format(
            "{} operations, {} to {}, peak live {} · {}{}", count_text(report_.operations),
            bytes_text(report_.facts.smallest_bytes), bytes_text(report_.facts.largest_bytes),
            bytes_text(report_.facts.peak_live_bytes), report_.device,
            report_.limit_bytes ? fmt::format(" · limit {}", bytes_text(*report_.limit_bytes))
                                : ""));
    const double y = 92;
    svg += fmt::format(
        "<rect x=\"{0}\" y=\"{1}\" width=\"14\" height=\"10\" class=\"live\"/>\n"
        "<rect x=\"{2}\" y=\"{1}\" width=\"14\" height=\"10\" class=\"reserved\"/>\n",
        kPlotLeft, y - 9, kPlotLeft + 64);
    svg += text_at(kPlotLeft + 20, y, "note", "live");
    svg += text_at(kPlotLeft + 84, y, "note", "reserved, over the operations of the first pass");
    if (report_.limit_bytes) {
      svg += line_at(kPlotLeft + 372, y - 4, kPlotLeft + 396, y - 4, "limit");
      svg += text_at(kPlotLeft + 402, y, "note", "limit");
    }
    return svg + text_at(kBarLeft, y, "note", "host time per operation, warm");
  }

  [[nodiscard]] std::string draw_row(const ReplayResult& result, double y) const {
    std::string svg = fmt::format("<g><title>{}</title>\n", escape_xml(result.backend));
    svg += text_at(28, y + 22, "name", result.backend);
    if (!result.error.empty()) {
      // One line; the table has the whole text.
      const std::string shown =
          result.error.size() > 110 ? result.error.substr(0, 107) + "…" : result.error;
      svg += text_at(kPlotLeft, y + 22, "note", shown);
      return svg + "</g>\n";
    }
    if (result.backend == "bump") {
      svg += text_at(28, y + 42, "note", "the replay itself:");
      svg += text_at(28, y + 58, "note", "no allocator");
    } else {
      svg += text_at(28, y + 42, "figure", percent_text(result.waste()) + " waste");
      svg += text_at(28, y + 60, "figure", "peak " + bytes_text(result.peak_reserved));
      svg += text_at(28, y + 78, "figure",
                     plural(result.driver_calls_first, "driver call", "driver calls"));
      if (result.ooms == 0 && !result.completed()) svg += text_at(28, y + 96, "bad", "too slow");
      if (result.ooms > 0) {
        svg += text_at(28, y + 96, "bad", plural(result.ooms, "out of memory", "× out of memory"));
      }
    }
    return svg + draw_memory(result, y) + draw_bar(result, y) + "</g>\n";
  }

  [[nodiscard]] std::string draw_memory(const ReplayResult& result, double y) const {
    const double bottom = y + 8 + kPlotHeight;
    const auto height_of = [&](double bytes) { return bottom - bytes / top_ * kPlotHeight; };
    std::string svg;
    const double step = round_step(top_);
    for (double tick = step; tick <= top_ * 1.0001; tick += step) {
      svg += line_at(kPlotLeft, height_of(tick), kPlotLeft + kPlotWidth, height_of(tick), "grid");
      svg += text_at(kPlotLeft - 8, height_of(tick) + 4, "axis", tick_text(tick), "end");
    }
    const auto area = [&](std::uint64_t MemorySample::*member, std::string_view css) {
      std::string path = fmt::format("M{:.1f} {:.1f}", kPlotLeft, bottom);
      for (const MemorySample& sample : result.samples) {
        const double x = kPlotLeft + static_cast<double>(sample.op) /
                                         static_cast<double>(report_.operations) * kPlotWidth;
        path += fmt::format("L{:.1f} {:.1f}", x, height_of(static_cast<double>(sample.*member)));
      }
      const double last = result.samples.empty()
                              ? kPlotLeft
                              : kPlotLeft + static_cast<double>(result.samples.back().op) /
                                                static_cast<double>(report_.operations) *
                                                kPlotWidth;
      return fmt::format("<path d=\"{}L{:.1f} {:.1f}Z\" class=\"{}\"/>\n", path, last, bottom, css);
    };
    svg += area(&MemorySample::reserved_bytes, "reserved");
    svg += area(&MemorySample::live_bytes, "live");
    if (report_.limit_bytes) {
      const double limit = height_of(static_cast<double>(*report_.limit_bytes));
      svg += line_at(kPlotLeft, limit, kPlotLeft + kPlotWidth, limit, "limit");
    }
    if (result.first_oom_op) {
      const double x = kPlotLeft + static_cast<double>(*result.first_oom_op) /
                                       static_cast<double>(report_.operations) * kPlotWidth;
      svg += line_at(x, y + 8, x, bottom, "oom");
    }
    return svg + line_at(kPlotLeft, bottom, kPlotLeft + kPlotWidth, bottom, "base");
  }

  [[nodiscard]] std::string draw_bar(const ReplayResult& result, double y) const {
    const double value = speed(result);
    const bool cut = value > bar_top_ * 1.0001;
    const double length = std::max(1.5, std::min(1.0, value / bar_top_) * kBarWidth);
    const double top = y + 38;
    std::string svg = fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"26\" rx=\"2\" "
        "class=\"{}\"/>\n",
        kBarLeft, top, length, result.backend == "bump" ? "loop" : "bar");
    if (cut) {
      // Two strokes through the bar: it would be longer.
      for (const double at : {0.82, 0.87}) {
        svg += fmt::format("<path d=\"M{:.1f} {:.1f}l-7 30\" class=\"cut\"/>\n",
                           kBarLeft + kBarWidth * at, top - 2);
      }
    }
    return svg + text_at(kBarLeft + length + 8, top + 18, "name", time_text(value));
  }

  const Report& report_;
  double top_ = 1;
  double slowest_ = 1e-3;
  double bar_top_ = 1;
};

}  // namespace

std::string chart_svg(const Report& report) { return Chart(report).draw(); }

std::string chart_html(const Report& report) {
  constexpr std::string_view kStyle =
      "<style>:root { color-scheme: light dark } body { margin: 24px auto; max-width: 1060px; "
      "font-family: system-ui, sans-serif; background: #ffffff } "
      "@media (prefers-color-scheme: dark) { body { background: #14181d } }</style>";
  const std::string svg = chart_svg(report);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n{0}\n"
      "<title>{1}</title>\n{2}\n</head>\n<body>\n{3}<p>{4}</p>\n</body>\n</html>\n",
      content_policy({kStyle, svg}), escape_xml(report.sequence), kStyle, svg,
      escape_xml(summary(report)));
}

}  // namespace gantry::replay
