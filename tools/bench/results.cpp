#include "tools/bench/results.hpp"

#include <fmt/format.h>

#include "tools/bench/charts.hpp"
#include "tools/program/output_file.hpp"

namespace gantry::bench {

namespace {

void write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    fmt::print("{}", text);
    return;
  }
  write_output(path, text);
}

}  // namespace

Table::Table(const Options& options, bool reports)
    : out_(options.json == "-" ? stderr : stdout), shown_(reports && !options.quiet) {}

void Table::print(const std::string& text) const {
  if (!shown_) return;
  fmt::print(out_, "{}", text);
  std::fflush(out_);
}

Row row_of(const Case& what, const std::string& variant, const std::string& algorithm) {
  Row row;
  row.operation = operation_name(what.kind);
  row.dtype = name(what.dtype);
  row.redop = reduces(what.kind) ? name(what.op) : "-";
  row.root = what.root;
  row.bytes = what.bytes;
  row.count = what.count;
  row.variant = variant;
  row.algorithm = algorithm;
  row.mode = what.graph_calls > 0 ? "graph" : "eager";
  row.in_place = is_in_place(what.kind);
  return row;
}

void check_outputs(const Options& options) {
  for (const std::string& path : {options.json, options.svg}) {
    if (!path.empty() && path != "-") check_output(path);
  }
}

void write_results(const Options& options, const Report& report,
                   const std::vector<Report>& others) {
  if (!options.json.empty()) write_text(options.json, report_json(report));
  if (!options.svg.empty()) write_text(options.svg, report_svg(report, others));
}

}  // namespace gantry::bench
