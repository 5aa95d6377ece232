// Measures every algorithm with every number of blocks.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/bench/rank_group.hpp"
#include "tools/bench/report.hpp"
#include "tools/tune/options.hpp"
#include "tools/tune/rows.hpp"

namespace gantry::tune {

/// The findings of a sweep, on rank 0; empty elsewhere.
struct Findings {
  std::map<CollectiveKind, std::vector<Sample>> samples;
  bench::Report report;  ///< the same with all figures
};

/// Measures on all ranks of `group`; wrong results are reported and give no sample.
/// `progress(text)` is told what is being measured, on rank 0.
[[nodiscard]] Findings sweep(bench::RankGroup& group, const Options& options,
                             const std::function<void(const std::string&)>& progress);

/// The text of a table file: what `findings` say for this machine, and the present choices for what
/// was not measured; with the tables of `present` (a file's text, or empty) for other machines.
/// Throws: InvalidArgument.
[[nodiscard]] std::string table_text(const Findings& findings, const std::string& present);

}  // namespace gantry::tune
