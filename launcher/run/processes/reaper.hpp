#pragma once

#include <sys/types.h>

#include <string>

namespace gantry::launcher {

/// Note [Nothing is left behind]
/// A launcher that is killed with SIGKILL cannot clean up. The kernel kills its direct children
/// (PR_SET_PDEATHSIG), but not their children. A second process, the reaper, therefore holds the
/// read end of a pipe whose write end only the launcher has. If the pipe ends without a dismissal,
/// the reaper
///   1. kills every rank's process group;
///   2. kills every process whose environment has the job's id, which finds those in other groups;
///   3. removes the job's scratch directory, and ends.
/// Each rank registers its group itself before it executes the program, so no group is missed. The
/// reaper has its own session, ignores signals of the terminal, and holds no descriptor of the
/// user. It starts before the job has any resource, even a scratch directory.
class Reaper {
 public:
  /// Starts the reaper and waits until it is ready. The process must have one thread.
  /// Throws: std::system_error.
  Reaper(const std::string& job_id, const std::string& scratch_directory);
  /// Dismisses the reaper and waits for its end, if dismiss() was not called.
  ~Reaper();
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Registers process group `group` as the job's. Async-signal-safe.
  void add_group(pid_t group) const noexcept;
  /// Removes `group`, which is empty: the kernel may reuse its number.
  void remove_group(pid_t group) const noexcept;
  /// Makes the reaper clean up now, and waits for its end.
  void clean_up() noexcept;
  /// Ends the reaper without a clean-up: the launcher has cleaned up itself.
  void dismiss() noexcept;
  /// Call this when the reaper's process has been waited for elsewhere.
  void mark_reaped() noexcept { pid_ = -1; }

 private:
  void wait_for_end() noexcept;

  int pipe_ = -1;
  pid_t pid_ = -1;
};

/// True if `pid` is a reaper of any job. Reapers end by themselves.
[[nodiscard]] bool is_reaper(pid_t pid);

}  // namespace gantry::launcher
