// Where results go: a table, a JSON file, a chart.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "tools/bench/options.hpp"
#include "tools/bench/report.hpp"

namespace gantry::bench {

/// The printed table. Beside JSON on stdout, it goes to stderr.
class Table {
 public:
  /// `reports`: false where another process prints.
  Table(const Options& options, bool reports);
  void print(const std::string& text) const;

 private:
  std::FILE* out_;
  bool shown_;
};

/// A row about `what` that has no time yet.
[[nodiscard]] Row row_of(const Case& what, const std::string& variant,
                         const std::string& algorithm);

/// Says before the measurement what write_results could not write. Throws: Error.
void check_outputs(const Options& options);

/// Writes what --json and --svg name. Throws: Error.
void write_results(const Options& options, const Report& report, const std::vector<Report>& others);

}  // namespace gantry::bench
