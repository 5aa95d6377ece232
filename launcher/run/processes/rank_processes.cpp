#include "launcher/run/processes/rank_processes.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/assert.hpp"
#include "launcher/run/processes/process.hpp"

namespace gantry::launcher {

RankProcesses::RankProcesses(Reaper& reaper) : reaper_(reaper) {
  for (const pid_t pid : child_processes()) earlier_children_.insert(pid);
}

void RankProcesses::reset(std::size_t ranks) {
  ranks_.assign(ranks, Rank());
  signalled_orphans_.clear();
  last_signal_ = 0;
}

void RankProcesses::add(int rank, pid_t pid) {
  Rank& process = ranks_[static_cast<std::size_t>(rank)];
  GANTRY_ASSERT(pid > 0 && process.pid <= 0, "a rank gets a second process");
  GANTRY_ASSERT(!running_rank(pid), "two ranks have one process");
  process.pid = pid;
}

void RankProcesses::mark_ended(int rank) {
  Rank& process = ranks_[static_cast<std::size_t>(rank)];
  GANTRY_ASSERT(process.pid > 0 && !process.has_ended, "the end of a rank has no process to end");
  process.has_ended = true;
}

void RankProcesses::forget(pid_t pid) {
  earlier_children_.erase(pid);
  signalled_orphans_.erase(pid);
}

void RankProcesses::kill_group(int rank) const {
  const Rank& process = ranks_[static_cast<std::size_t>(rank)];
  if (process.pid > 0 && !process.is_group_gone) kill(-process.pid, SIGKILL);
}

void RankProcesses::replace(int rank) {
  GANTRY_ASSERT(ranks_[static_cast<std::size_t>(rank)].pid <= 0 ||
                    ranks_[static_cast<std::size_t>(rank)].has_ended,
                "a rank is replaced that runs");
  kill_group(rank);
  const Rank before = std::exchange(ranks_[static_cast<std::size_t>(rank)], Rank());
  if (before.pid > 0 && !before.is_group_gone) replaced_groups_.push_back(before.pid);
}

// The number of an ended process may have a new owner.
std::optional<int> RankProcesses::running_rank(pid_t pid) const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].pid == pid && !ranks_[i].has_ended) return static_cast<int>(i);
  }
  return std::nullopt;
}

std::vector<pid_t> RankProcesses::orphans() const {
  std::vector<pid_t> result;
  for (const pid_t pid : child_processes()) {
    if (!running_rank(pid) && pid != reaper_.pid() && !is_reaper(pid) &&
        !earlier_children_.contains(pid)) {
      result.push_back(pid);
    }
  }
  return result;
}

void RankProcesses::signal_ranks(int signal) const {
  for (const Rank& rank : ranks_) {
    if (rank.pid > 0 && !rank.has_ended) kill(rank.pid, signal);
  }
}

void RankProcesses::signal_groups(int signal) {
  for (Rank& rank : ranks_) {
    if (rank.pid <= 0 || rank.is_group_gone) continue;
    // It may have joined another group.
    if (!rank.has_ended && getpgid(rank.pid) != rank.pid) kill(rank.pid, signal);
    if (kill(-rank.pid, signal) != 0 && errno == ESRCH && rank.has_ended) {
      rank.is_group_gone = true;
      reaper_.remove_group(rank.pid);
    }
  }
  std::erase_if(replaced_groups_, [&](pid_t group) {
    if (kill(-group, signal) == 0 || errno != ESRCH) return false;
    reaper_.remove_group(group);
    return true;
  });
}

void RankProcesses::signal_everyone(int signal) {
  last_signal_ = signal;
  signal_groups(signal);
  signalled_orphans_.clear();
  signal_late(orphans());
}

void RankProcesses::signal_late(const std::vector<pid_t>& orphans) {
  for (const pid_t pid : orphans) {
    if (signalled_orphans_.insert(pid).second) kill(pid, last_signal_);
  }
}

}  // namespace gantry::launcher
