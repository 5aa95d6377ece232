// How the shims of a job on several machines tell that they are there.
#pragma once

#include <string>
#include <vector>

#include <gantry/job/process_identity.hpp>

#include "launcher/run/failures/report.hpp"
#include "launcher/run/hosts/delegation.hpp"

namespace gantry::launcher {

/// Tells the job's store that the shim of this rank is on `host`, and waits for the others.
/// Throws: Error if the store cannot be reached or a rank does not come.
void arrive_and_wait(const ProcessIdentity& identity, const std::string& host);

/// The ranks of a job of `ranks` that have not arrived at the store that this process serves at
/// `address`.
[[nodiscard]] std::vector<int> missing_ranks(const std::string& address, const std::string& token,
                                             int ranks);

/// Enters that the other launcher of the job failed before these ranks had arrived: the job did not
/// start. `job` has the launcher as its only rank.
void enter_missing_ranks(JobResult& job, const Delegation& delegation,
                         const std::vector<int>& missing);

}  // namespace gantry::launcher
