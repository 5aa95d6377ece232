#include "tools/plot/line_chart.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <regex>
#include <string>
#include <vector>

namespace gantry::plot {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The first groups of all matches.
std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
    found.push_back((*at)[1]);
  }
  return found;
}

// The numbers at the axes of a chart of one panel, or of the panel that begins with `title`.
std::vector<std::string> ticks(const std::string& svg, const std::string& title) {
  const std::size_t begin = svg.find(title);
  std::size_t end = svg.find("class=\"panel\"", begin);
  end = end == std::string::npos ? svg.size() : end;
  return matches(svg.substr(begin, end - begin),
                 "class=\"axis\" text-anchor=\"(?:end|middle)\">([^<]*)<");
}

LineChart chart_of(std::vector<Panel> panels) { return {"Title", "note", std::move(panels)}; }

TEST(LineChartTest, EachMeasuredPointHasADot) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = line_chart_svg(
      chart_of({{"one", "µs", true, {{"a", {{1, 2}, {4, 3}, {16, nan}}}, {"b", {{8, 5}}}}}}));
  // Two in the legend, and three points: NaN is not drawn.
  EXPECT_EQ(matches(svg, "<circle [^>]*class=\"(c\\d)\"").size(), 5u);
  const std::vector<std::string> line =
      matches(svg, "<g><title>a</title><polyline points=\"([^\"]*) \"");
  ASSERT_EQ(line.size(), 1u);
  for (const std::string& point : matches(line[0] + " ", "([\\d.]+,[\\d.]+) ")) {
    const std::string x = point.substr(0, point.find(','));
    const std::string y = point.substr(point.find(',') + 1);
    EXPECT_THAT(svg, HasSubstr("<circle cx=\"" + x + "\" cy=\"" + y + "\""));
  }
}

TEST(LineChartTest, PanelsOfOneUnitHaveEqualAxes) {
  const std::string svg = line_chart_svg(chart_of({
      {"small", "GB/s", false, {{"a", {{1024, 2}, {4096, 3}}}}},
      {"time", "µs", true, {{"a", {{1024, 2}, {4096, 3}}}}},
      {"large", "GB/s", false, {{"a", {{65536, 200}, {262144, 400}}}}},
  }));
  const std::vector<std::string> small = ticks(svg, ">small<");
  EXPECT_EQ(small, ticks(svg, ">large<"));
  EXPECT_THAT(small, ::testing::IsSupersetOf({"400", "1K", "256K"}));
  EXPECT_NE(small, ticks(svg, ">time<")) << "other units have axes of their own";
  EXPECT_THAT(ticks(svg, ">time<"), ::testing::Contains("256K"));
}

TEST(LineChartTest, ThousandsHaveSeparators) {
  const std::string svg =
      line_chart_svg(chart_of({{"time", "µs", true, {{"a", {{1, 0.5}, {2, 1234567}}}}},
                               {"speed", "GB/s", false, {{"a", {{1, 12000}, {2, 900}}}}}}));
  EXPECT_THAT(ticks(svg, ">time<"),
              ::testing::IsSupersetOf({"0.1", "100", "1,000", "10,000", "1,000,000"}));
  EXPECT_THAT(ticks(svg, ">speed<"), ::testing::IsSupersetOf({"0", "2,500", "12,500"}));
}

TEST(LineChartTest, ColoursAreClassesWithDarkVariants) {
  const std::string svg = line_chart_svg(chart_of({{"one", "µs", true, {{"a", {{1, 2}}}}}}));
  const std::size_t dark = svg.find("@media (prefers-color-scheme: dark)");
  ASSERT_NE(dark, std::string::npos);
  const std::size_t body = svg.find("</style>");
  for (const std::string name : {".page", "text", ".axis", ".grid", ".base", ".c0", ".c7"}) {
    const std::string style = svg.substr(0, body);
    EXPECT_LT(style.find(name), dark) << name;
    EXPECT_NE(style.find(name, dark), std::string::npos) << name;
  }
  EXPECT_THAT(svg.substr(body), Not(HasSubstr("#"))) << "a colour that no style changes";
}

}  // namespace
}  // namespace gantry::plot
