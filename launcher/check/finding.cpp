#include "launcher/check/finding.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gantry::launcher {

std::string_view name(Severity severity) {
  switch (severity) {
    case Severity::fine:
      return "ok";
    case Severity::note:
      return "note";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return {};
}

void sort_findings(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<8} {}: {}\n", name(finding.severity), finding.subject, finding.text);
    if (!finding.remedy.empty()) text += fmt::format("         {}\n", finding.remedy);
  }
  return text;
}

Json findings_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back(Json::object({{"severity", name(finding.severity)},
                                 {"subject", finding.subject},
                                 {"text", finding.text},
                                 {"remedy", finding.remedy}}));
  }
  return list;
}

int exit_code(const std::vector<Finding>& findings) {
  int code = 0;
  for (const Finding& finding : findings) {
    if (finding.severity == Severity::warning) code = std::max(code, 1);
    if (finding.severity == Severity::error) code = 2;
  }
  return code;
}

}  // namespace gantry::launcher
