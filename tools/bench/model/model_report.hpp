// Predictions as rows of a report, and as text.
#pragma once

#include <string>

#include "tools/bench/model/model.hpp"
#include "tools/bench/options.hpp"
#include "tools/bench/report.hpp"

namespace gantry::bench {

/// The head of the table: the machines, the formula and the names of the columns.
[[nodiscard]] std::string model_head_text(const std::string& library, const MachineModel& machines);
/// One line of the table.
[[nodiscard]] std::string model_row_text(const Row& row);

/// Predicts all cases of `options` for each of its numbers of ranks, and prints the table. The
/// program's `library` is "gantry 0.3.0". Throws: InvalidArgument, before anything is printed.
[[nodiscard]] Report predict_all(const Options& options, const std::string& library);

}  // namespace gantry::bench
