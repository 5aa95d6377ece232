// The measurements, as text and as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/selection/descriptor.hpp"
#include "tools/bench/timing.hpp"

namespace gantry::bench {

/// The counts of a predicted size.
struct PredictedCounts {
  /// The bytes of links of one kind.
  struct Links {
    std::string kind;
    std::int64_t busiest_bytes = 0;  ///< of one link in one direction
    std::int64_t bytes = 0;          ///< of all links
  };
  int ranks = 0;
  std::int64_t steps = 0;
  std::int64_t messages = 0;
  std::vector<Links> links;
};

/// One measured or predicted size.
struct Row {
  std::string operation;
  std::string dtype;
  std::string redop;  ///< "-" where nothing is reduced
  int root = -1;
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  std::string variant;    ///< what was asked for: "auto", "ll", "symmetric", …
  std::string algorithm;  ///< what it took
  std::string mode;       ///< "eager", "graph" or "model"
  bool in_place = false;
  int calls = 0;
  int batches = 0;
  double time_us = 0;
  double min_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  double algbw_gbs = 0;  ///< 10^9 bytes a second
  double busbw_gbs = 0;
  std::optional<std::int64_t> wrong;
  std::string note;                          ///< why there is no time, or empty
  std::optional<PredictedCounts> predicted;  ///< of a model; not read back

  /// Sets times and bandwidths.
  void set_timing(const Timing& timing, double bus_factor);
};

/// A run of a program that measures collectives.
struct Report {
  std::string library;  ///< "gantry 0.2.0", "NCCL 2.28.9", …
  std::string device;
  int ranks = 0;
  std::string launched_by;
  std::vector<Row> rows;
};

/// Head of the table: what ran, and the names of the columns.
[[nodiscard]] std::string head_text(const Report& report);
/// One line of the table.
[[nodiscard]] std::string row_text(const Row& row);
/// Last line: wrong elements and mean bus bandwidth.
[[nodiscard]] std::string tail_text(const Report& report);
/// The line about sizes of an operation that an algorithm does not serve.
[[nodiscard]] std::string unserved_text(CollectiveKind kind, std::string_view algorithm,
                                        std::size_t unserved, std::size_t cases);
/// Elements that were wrong in all rows.
[[nodiscard]] std::int64_t wrong_elements(const Report& report);
/// True if a row was timed or checked; false if all were skipped, or there is none.
[[nodiscard]] bool has_measurements(const Report& report);

[[nodiscard]] std::string report_json(const Report& report);
/// Throws: InvalidArgument that names the file and what is wrong with it.
[[nodiscard]] Report read_report(const std::string& path);

}  // namespace gantry::bench
