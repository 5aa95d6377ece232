// GPUs that a job of glaunch has, so that another glaunch does not take them for idle.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

#include "launcher/run/plan/plan.hpp"

namespace gantry::launcher {

/// Note [Claims of GPUs]
/// A GPU seems idle until a rank uses it, so two glaunch processes that start together would choose
/// the same GPUs. Each glaunch therefore claims its GPUs. It binds a socket to an abstract name
/// with the GPU's UUID, and holds it until the job ends. The kernel frees the name when glaunch
/// ends, also by SIGKILL. Only one process of all users can bind a name. A claim says no more than
/// a process on the GPU does: any user of the machine can make one.
/// While glaunch chooses, it claims more GPUs than it needs. So only one glaunch of a user chooses
/// at a time: it holds a lock on a file in the user's own folder. Where another user's glaunch
/// chooses at the same time, the one that finds too few GPUs gives up its claims and tries again.
class GpuClaims {
 public:
  /// Claims these GPUs as far as nobody has them. Returns those that others have.
  std::vector<std::string> claim(const std::vector<std::string>& uuids);
  /// Gives up all claims but these.
  void keep(const std::vector<std::string>& uuids);

 private:
  std::map<std::string, UniqueFd> held_;
};

/// The turn to choose.
class ChoiceTurn {
 public:
  /// Waits until it is this process's turn. Throws: Error after `deadline`.
  explicit ChoiceTurn(std::chrono::milliseconds deadline);

 private:
  UniqueFd lock_;
};

/// As make_plan(). Chooses among the GPUs that no other glaunch has claimed, for --gpus idle, and
/// claims the GPUs of the plan if they are GPUs of this machine.
[[nodiscard]] Plan make_claimed_plan(const JobOptions& options, const Machine& machine,
                                     const Environment& environment, GpuClaims& claims);

}  // namespace gantry::launcher
