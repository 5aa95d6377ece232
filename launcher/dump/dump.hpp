// The progress of the ranks of this user's jobs, from their flight files.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "job/group_report.hpp"

namespace gantry {
class Json;
}  // namespace gantry

namespace gantry::launcher {

using flight::GroupReport;
using flight::ProcessState;
using flight::QueueReport;
using flight::RankReport;

/// The flight files that `target` names: a job, a process id, a file (with a slash), or all of this
/// user if empty; newest first. Throws: InvalidArgument if it names none.
[[nodiscard]] std::vector<flight::OpenFile> find_flights(const std::string& target);

/// The progress of a group, and its diagnosis.
[[nodiscard]] GroupReport look_at(const flight::OpenFile& file);
/// Waiting ranks, ranks with different calls, lost ranks; the most significant first. Empty if
/// nothing is amiss.
[[nodiscard]] std::vector<std::string> findings(const flight::View& view,
                                                const std::vector<RankReport>& ranks);
/// The findings from the calls of a group's ranks, or a sentence that there are none.
[[nodiscard]] std::vector<std::string> diagnose(const flight::View& view,
                                                const std::vector<RankReport>& ranks);

/// The faults in the groups of the job `job`, for the report of its failure: of groups that
/// broke if there are such; the most telling sentence of each, at most some.
[[nodiscard]] std::vector<std::string> diagnose_job(const std::string& job);

/// For programs; `view` as below.
[[nodiscard]] Json to_json(const GroupReport& report, const flight::View& view);
/// For people; `view` is the one that `report` was made from.
[[nodiscard]] std::string describe_group(const GroupReport& report, const flight::View& view);

}  // namespace gantry::launcher
