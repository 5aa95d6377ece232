// A finding of a check of the machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/text/json.hpp"

namespace gantry::launcher {

/// How much a finding matters.
enum class Severity {
  fine,     ///< looked at, nothing found
  note,     ///< good to know
  warning,  ///< jobs run, but slower or less safely
  error,    ///< jobs will not run
};

/// Name of a severity: "ok", "note", "warning" or "error".
[[nodiscard]] std::string_view name(Severity severity);

/// One result of `glaunch check`.
struct Finding {
  Severity severity = Severity::fine;
  std::string subject;  ///< "driver", "GPU 3", "/dev/shm"
  std::string text;     ///< one sentence without its end
  std::string remedy;   ///< what to do; empty for Severity::fine
};

/// Puts the most important findings first. Equally important ones keep their order.
void sort_findings(std::vector<Finding>& findings);

/// The findings as text.
[[nodiscard]] std::string findings_text(const std::vector<Finding>& findings);
/// The findings as a JSON array.
[[nodiscard]] Json findings_json(const std::vector<Finding>& findings);

/// 0: at most notes; 1: a warning; 2: an error.
[[nodiscard]] int exit_code(const std::vector<Finding>& findings);

}  // namespace gantry::launcher
