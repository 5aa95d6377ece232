#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "launcher/run/processes/reaper.hpp"

namespace gantry::launcher {

/// The processes of a job: its ranks, each with a process group, and the processes they started.
///
/// Thread safety: none.
class RankProcesses {
 public:
  /// Children that this process has now are none of the job's: a shell that became glaunch leaves
  /// its own.
  explicit RankProcesses(Reaper& reaper);

  /// Forgets the processes of an earlier start of the job. No rank has a process.
  void reset(std::size_t ranks);
  /// Notes the process of `rank`, which leads a process group.
  void add(int rank, pid_t pid);
  /// Notes the end of the process of `rank`.
  void mark_ended(int rank);
  /// Notes that a child was waited for, whose number may now have a new owner.
  void forget(pid_t pid);
  /// Kills what is left of the group of `rank`.
  void kill_group(int rank) const;
  /// As kill_group(). The rank may have another process.
  void replace(int rank);

  /// The rank whose running process this is.
  [[nodiscard]] std::optional<int> running_rank(pid_t pid) const;
  /// Children of this process that are no rank's: what ranks started and left.
  [[nodiscard]] std::vector<pid_t> orphans() const;

  /// Sends a signal to the running ranks, not to their children.
  void signal_ranks(int signal) const;
  /// Sends a signal to the groups of all ranks, and forgets those that are empty. 0 sends none.
  void signal_groups(int signal);
  /// As signal_groups(), and to the orphans.
  void signal_everyone(int signal);
  /// Sends the last signal of signal_everyone() to the `orphans` that did not get it.
  void signal_late(const std::vector<pid_t>& orphans);

 private:
  struct Rank {
    pid_t pid = -1;
    bool has_ended = false;
    bool is_group_gone = false;
  };

  Reaper& reaper_;
  std::vector<Rank> ranks_;
  std::vector<pid_t> replaced_groups_;  // of replaced ranks; they may not be empty
  std::set<pid_t> earlier_children_;
  std::set<pid_t> signalled_orphans_;
  int last_signal_ = 0;
};

}  // namespace gantry::launcher
