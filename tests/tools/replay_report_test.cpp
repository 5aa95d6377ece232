// Tables, JSON and charts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>
#include <gantry/core/error.hpp>
#include <sstream>
#include <system_error>

#include "core/text/json.hpp"
#include "tests/support/subprocess.hpp"
#include "tools/replay/chart.hpp"
#include "tools/replay/format.hpp"
#include "tools/replay/options.hpp"
#include "tools/replay/report.hpp"
#include "tools/replay/worker.hpp"

namespace gantry::replay {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ReplayResult result_of(const std::string& backend, double warm_ns, std::uint64_t reserved) {
  ReplayResult result;
  result.backend = backend;
  result.first_ns = warm_ns * 10;
  result.warm_ns = warm_ns;
  result.operations = result.done = 2000;
  result.peak_live = 900 << 20;
  result.peak_reserved = reserved;
  result.driver_calls_first = 1234;
  result.samples = {{500, 100 << 20, 200 << 20}, {2000, 900 << 20, reserved}};
  return result;
}

Report sample_report() {
  Report report;
  report.sequence = "rmm:1000,<64> & \"more\"";
  report.operations = 2000;
  report.facts = {.allocations = 1000,
                  .peak_live_bytes = 900 << 20,
                  .smallest_bytes = 512,
                  .largest_bytes = 64 << 20,
                  .live_blocks_at_end = 1};
  report.device = "Simulated GPU (cuda:0, 16.0 GiB)";
  report.limit_bytes = 945 << 20;
  report.repeat = 5;
  report.results = {result_of("vmm", 20.0, 910 << 20), result_of("native", 150.0, 1000 << 20)};
  ReplayResult short_of_memory = result_of("async", 700, 945 << 20);
  short_of_memory.ooms = 3;
  short_of_memory.first_oom_op = 1199;
  report.results.push_back(short_of_memory);
  ReplayResult failed;
  failed.backend = "cuda";
  failed.error = "ended by SIGSEGV <&>";
  report.results.push_back(failed);
  report.results.push_back(result_of("bump", 3, 900 << 20));
  return report;
}

TEST(QuantityTest, ReadsWell) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.00 KiB");
  EXPECT_EQ(bytes_text((std::uint64_t{1} << 30) - 1), "1.00 GiB");
  EXPECT_EQ(bytes_text(std::uint64_t{16} << 30), "16.0 GiB");
  EXPECT_EQ(bytes_text(std::uint64_t{141} << 30), "141 GiB");
  EXPECT_EQ(time_text(3.456), "3.46 ns");
  EXPECT_EQ(time_text(24.06), "24.1 ns");
  EXPECT_EQ(time_text(999.9), "1.00 µs");
  EXPECT_EQ(time_text(1.5e6), "1.50 ms");
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1234567), "1,234,567");
  EXPECT_EQ(percent_text(0.0214), "2.1 %");
  EXPECT_EQ(percent_text(-0.0001), "0.0 %");
}

TEST(ReportTest, TableIsAligned) {
  std::istringstream text(report_text(sample_report()));
  std::vector<std::string> rows;
  for (std::string line; std::getline(text, line);) rows.push_back(line);
  const auto header = std::find_if(rows.begin(), rows.end(),
                                   [](const auto& row) { return row.starts_with("  backend"); });
  ASSERT_NE(header, rows.end());
  EXPECT_EQ(header->find("leaks") + 5, header->size());
  for (const char* name : {"vmm", "native", "async", "bump"}) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& line) {
      return line.starts_with(fmt::format("  {} ", name));
    });
    ASSERT_NE(row, rows.end()) << name;
    // "µ" takes two bytes and one place.
    const auto wide = std::count(row->begin(), row->end(), '\xc2');
    EXPECT_EQ(row->size() - static_cast<std::size_t>(wide), header->size()) << *row;
  }
  const std::string whole = report_text(sample_report());
  EXPECT_THAT(whole, HasSubstr("  cuda      ended by SIGSEGV"));
  EXPECT_THAT(whole, HasSubstr("limit 945 MiB (1.05 × peak live)"));
  EXPECT_THAT(whole, HasSubstr("1 block is live at the end"));
}

TEST(ReportTest, SummaryNamesTheBest) {
  EXPECT_EQ(summary(sample_report()),
            "vmm is fastest: 20.0 ns per operation, 7.5× faster than native; it also wastes least: "
            "1.1 %; async runs out of memory.");
  Report report = sample_report();
  report.results = {result_of("vmm", 200.0, 910 << 20), result_of("native", 150.0, 1000 << 20),
                    result_of("cuda", 9000, 900 << 20)};
  EXPECT_EQ(
      summary(report),
      "native is fastest: 150 ns per operation, 1.3× faster than vmm; vmm wastes least: 1.1 %.");
  report.results = {sample_report().results[2]};
  EXPECT_EQ(summary(report), "async runs out of memory at operation 1,200 of 2,000.");
  report.results = {sample_report().results[0]};
  EXPECT_EQ(summary(report), "vmm completes: 20.0 ns per operation, 1.1 % waste.");
  report.results[0].done = 700;
  EXPECT_EQ(summary(report), "vmm is too slow: 700 of 2,000 operations were done in time.");
  report.results = {sample_report().results[3], sample_report().results[3]};
  EXPECT_EQ(summary(report), "Nothing could be measured.");
}

TEST(ReportTest, JsonComesBack) {
  const Report report = sample_report();
  const std::string text = report_json(report);
  EXPECT_EQ(results_from_json(text), report.results);
  const auto json = Json::parse(text);
  EXPECT_EQ(json.at("sequence").at("peak_live_bytes"), 900 << 20);
  EXPECT_EQ(json.at("results").at(2).at("completed"), false);
  EXPECT_EQ(json.at("results").at(0).at("completed"), true);
  EXPECT_THROW((void)results_from_json("{}"), InvalidArgument);
  EXPECT_THROW((void)results_from_json("nothing"), InvalidArgument);
}

TEST(PictureTest, IsXmlWithARowPerBackend) {
  const std::string svg = chart_svg(sample_report());
  const TemporaryFile file(".svg");
  std::ofstream(file.path()) << svg;
  testing::Outcome outcome;
  try {
    outcome = testing::run_command(
        {.argv = {
             "python3", "-c",
             "import sys, xml.etree.ElementTree as tree\n"
             "root = tree.parse(sys.argv[1]).getroot()\n"
             "print(root.tag, ' '.join(t.text for t in root.iter() if t.tag.endswith('title')))",
             file.path()}});
  } catch (const std::system_error&) {
    GTEST_SKIP() << "python3 was not found";
  }
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.out, "{http://www.w3.org/2000/svg}svg vmm native async cuda bump\n");
}

TEST(PictureTest, ShowsLimitFailuresAndNothingThatIsNoNumber) {
  const std::string svg = chart_svg(sample_report());
  EXPECT_THAT(svg, HasSubstr("class=\"limit\""));
  EXPECT_THAT(svg, HasSubstr("class=\"oom\""));
  EXPECT_THAT(svg, HasSubstr("ended by SIGSEGV &lt;&amp;&gt;"));
  Report empty = sample_report();
  empty.limit_bytes.reset();
  empty.results = {ReplayResult()};
  for (const std::string& text : {svg, chart_svg(empty)}) {
    EXPECT_THAT(text, Not(HasSubstr("nan")));
    EXPECT_THAT(text, Not(HasSubstr("inf")));
  }
  const std::string html = chart_html(sample_report());
  EXPECT_THAT(html, HasSubstr("<!doctype html>"));
  EXPECT_THAT(html, HasSubstr("default-src 'none'; script-src 'none'; style-src 'sha256-"));
  EXPECT_THAT(html, Not(HasSubstr(" style=\"")));
}

Options parse(const std::vector<std::string>& arguments) { return parse_options(arguments); }

std::string refused(const std::vector<std::string>& arguments) {
  try {
    (void)parse_options(arguments);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(OptionsTest, Defaults) {
  const Options options = parse({"log.csv"});
  EXPECT_EQ(options.file, "log.csv");
  EXPECT_EQ(options.backends, std::vector<std::string>{"vmm"});
  EXPECT_EQ(options.repeat, 5);
  EXPECT_FALSE(options.threads_as_logged);
}

TEST(OptionsTest, TakesEverything) {
  const Options options =
      parse({"-w", "rmm:10,1", "-b", "cuda,bump", "--backend", "vmm", "--limit-factor", "1.05",
             "--threads", "as-logged", "-s", "16GiB", "-j", "-"});
  EXPECT_EQ(options.backends, (std::vector<std::string>{"cuda", "bump", "vmm"}));
  EXPECT_EQ(options.limit_factor, 1.05);
  EXPECT_TRUE(options.threads_as_logged);
  EXPECT_EQ(options.simulate_bytes, std::uint64_t{16} << 30);
  EXPECT_EQ(parse({"x", "--limit", "3M"}).limit_bytes, std::uint64_t{3} << 20);
  EXPECT_EQ(parse({"x", "--compare"}).backends.size(), 5U);
  EXPECT_TRUE(parse({"x", "--dump", "y"}).backends.empty()) << "writes and measures nothing";
}

TEST(OptionsTest, RefusesNonsense) {
  EXPECT_THAT(refused({}), HasSubstr("either a FILE or --workload"));
  EXPECT_THAT(refused({"a", "-w", "rmm:1,1"}), HasSubstr("either a FILE or --workload"));
  EXPECT_THAT(refused({"a", "-b", "best"}), HasSubstr("expected one of vmm"));
  EXPECT_THAT(refused({"a", "--limit", "many"}), HasSubstr("--limit"));
  EXPECT_THAT(refused({"a", "--limit", "1G", "--limit-factor", "2"}), HasSubstr("excludes"));
  EXPECT_THAT(refused({"a", "--limit-factor", "0.5"}), HasSubstr("a number from 1 to 1000"));
  EXPECT_THAT(refused({"a", "--picture", "x.png"}), HasSubstr("a file .svg or .html"));
  EXPECT_THAT(refused({"a", "--threads", "all"}), HasSubstr("--threads"));
  EXPECT_THAT(refused({"a", "--no-such"}), HasSubstr("--no-such"));
}

}  // namespace
}  // namespace gantry::replay
