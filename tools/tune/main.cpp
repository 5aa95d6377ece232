#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "collectives/selection/selector.hpp"
#include "core/files/regular_file.hpp"
#include "tools/program/output_file.hpp"
#include "tools/program/program.hpp"
#include "tools/tune/options.hpp"
#include "tools/tune/sweep.hpp"

namespace gantry::tune {
namespace {

constexpr int kWrong = 1;
constexpr std::size_t kMaxTableBytes = 16U << 20U;  // as the selector

// The tables that a file holds, empty if there is none. Throws: InvalidArgument if they are none.
std::string present_tables(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  FileContent file = read_regular_file(path, kMaxTableBytes);
  if (!file.ok()) throw InvalidArgument(fmt::format("--merge: {}: {}", path, file.problem));
  if (file.text.empty()) return {};
  try {
    (void)Selector::parse(file.text, 2, "*");
  } catch (const InvalidArgument& cause) {
    throw InvalidArgument(fmt::format("--merge: {}: {}", path, cause.what()));
  }
  return std::move(file.text);
}

int run(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  if (!options.text.empty()) {
    fmt::print("{}", options.text);
    return 0;
  }
  bench::RankGroup group(options.devices);
  if (group.ranks() < 2) {
    throw InvalidArgument("expected at least two ranks, but got one: there is nothing to choose");
  }
  if (group.reports()) {
    for (const std::string& path : {options.output, options.samples}) {
      if (!path.empty()) check_output(path);
    }
  }
  // What it cannot keep is better known before the sweep than after it.
  const std::string present =
      options.merge && group.reports() ? present_tables(options.output) : std::string();
  const Findings findings = sweep(group, options, [&](const std::string& text) {
    if (!options.quiet) fmt::print(stderr, "{}\n", text);
  });
  if (!group.reports()) return 0;
  const std::string text = table_text(findings, present);
  if (options.output.empty()) {
    fmt::print("{}", text);
  } else {
    write_output(options.output, text);
  }
  if (!options.samples.empty()) write_output(options.samples, report_json(findings.report));
  return wrong_elements(findings.report) == 0 ? 0 : kWrong;
}

}  // namespace
}  // namespace gantry::tune

int main(int argc, char** argv) {
  return gantry::run_program("gantry-tune", argc, argv, gantry::tune::run);
}
