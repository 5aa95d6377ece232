#pragma once

#include <sys/types.h>

#include <string>

namespace gantry::launcher {

/// Note [Nothing is left behind]
/// A launcher that is killed with SIGKILL cannot clean up. The kernel kills its direct children
/// (PR_SET_PDEATHSIG), but not theirs. So a second process, the guard, holds the read end of a pipe
/// whose write end only the launcher has: when the pipe ends without a word of farewell, the guard
/// kills every rank's process group, then every process whose environment carries the job's id
/// (which finds those that left their group), removes the job's scratch directory and ends. Each
/// rank registers its group itself before it executes anything, so no group is missed. The guard
/// has a session of its own, ignores what a terminal sends, holds no descriptor of the user's, and
/// never outlives the launcher by more than this clean-up. It stands before there is
/// anything of the job, even a scratch directory.
class Guard {
 public:
  /// Starts the guard and waits until it stands. Call it before the process has a second thread.
  /// Throws: std::system_error.
  Guard(const std::string& job_id, const std::string& scratch_directory);
  /// Dismisses the guard and waits for its end, if dismiss() was not called.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Tells the guard that process group `group` belongs to the job. Async-signal-safe.
  void add_group(pid_t group) const noexcept;
  /// Tells the guard that `group` is empty and its number may come to mean something else.
  void remove_group(pid_t group) const noexcept;
  /// Has the guard kill everything that belongs to the job, now, and waits for its end.
  void clean_up() noexcept;
  /// Sends the guard home: the launcher has cleaned up itself.
  void dismiss() noexcept;
  /// To be called when somebody else has reaped the guard's process.
  void mark_reaped() noexcept { pid_ = -1; }

 private:
  void wait_for_end() noexcept;

  int pipe_ = -1;
  pid_t pid_ = -1;
};

/// True if `pid` is a guard, this job's or another's. Guards end by themselves.
[[nodiscard]] bool is_guard(pid_t pid);

}  // namespace gantry::launcher
