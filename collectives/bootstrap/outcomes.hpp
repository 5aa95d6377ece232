#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bootstrap/job_connection.hpp"

namespace gantry {

// The outcomes that the members of a group that forms wrote in JobConnection::agree(): kFormed,
// "lost R" or "late R" with a rank of the job, or "error TEXT". Another rank writes "lost R" for
// the lost rank R.

// Returns the ranks in `group` that the outcomes of `speakers` call `what`: "lost" or "late". A
// speaker whose own outcome is a failure is none of them: it gave up because of that, and ranks
// that waited for it meanwhile may have taken it for lost.
std::set<int> ranks_called(std::string_view what, const std::vector<std::string>& outcomes,
                           const std::vector<JobMember>& speakers, const JobGroup& group);

// Returns the first outcome that is an error of its rank's own; empty if there is none.
std::string own_error(const std::vector<std::string>& outcomes, const JobGroup& members);

bool all_formed(const std::vector<std::string>& outcomes);

}  // namespace gantry
