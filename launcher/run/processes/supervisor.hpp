#pragma once

#include <sys/signalfd.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <gantry/extend/store.hpp>

#include "launcher/run/events/event_loop.hpp"
#include "launcher/run/failures/progress_watch.hpp"
#include "launcher/run/failures/replacements.hpp"
#include "launcher/run/failures/report.hpp"
#include "launcher/run/failures/restart_policy.hpp"
#include "launcher/run/output/log_files.hpp"
#include "launcher/run/output/output.hpp"
#include "launcher/run/output/rank_outputs.hpp"
#include "launcher/run/output/stdin_relay.hpp"
#include "launcher/run/processes/job_context.hpp"
#include "launcher/run/processes/process.hpp"
#include "launcher/run/processes/rank_processes.hpp"
#include "launcher/run/processes/reaper.hpp"

namespace gantry::launcher {

/// Starts the ranks of a plan, watches them until nothing of the job is left, and tells how it
/// went.
///
/// Make it in the main thread before any other thread exists.
class Supervisor {
 public:
  /// Throws: gantry::Error, std::system_error if the job's surroundings cannot be set up.
  Supervisor(const JobOptions& options, const Plan& plan, const Environment& environment);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Runs the job.
  [[nodiscard]] JobResult run();
  /// Prints a line of glaunch's own.
  void message(const std::string& line) { output_.message(line); }
  /// Prints lines that hold the output of a rank.
  void report(const std::vector<std::string>& lines) { output_.report(lines); }
  /// Waits until the console has taken everything; a signal ends the wait.
  void drain();

 private:
  // running → collecting (a rank failed; others may say why, too) → stopping → killing;
  // pausing before a restart
  enum class Phase { running, collecting, stopping, killing, pausing };

  void prepare_run();
  void run_once();
  bool pause(std::chrono::milliseconds delay);
  bool start_ranks();
  std::optional<ExecFailure> start_rank(const RankPlan& rank, const JobValues& values,
                                        int stdin_fd);
  Environment environment_of(const RankPlan& rank, const JobValues& values) const;
  void look_for_missing_ranks();
  void watch_end(pid_t pid);

  void take_signals();
  void take_signal(const signalfd_siginfo& info);
  void reap();
  void rank_ended(int rank, int status);
  void end_job(const RankResult& failed);

  // Note [Elastic jobs]
  StoreClient observe_store() const;
  void go_on_without(RankResult& entry);
  void replace(RankResult& entry);
  void start_replacements();
  void start_replacement(int rank);
  void restore_replaced();

  void look_at_progress(Clock::time_point now);
  [[nodiscard]] std::vector<int> ranks_without_group() const;

  void stop(int signal, std::chrono::milliseconds grace);
  void kill_all();
  void pass_deadlines();
  void look_for_the_end();
  std::optional<Clock::time_point> next_deadline() const;

  const JobOptions& options_;
  const Plan& plan_;
  const Environment& environment_;
  rlimit descriptors_;
  LogFiles logs_;  // before signals are blocked
  int signal_fd_;
  JobContext context_;
  Reaper reaper_;  // before anything that starts a thread
  RankProcesses processes_;
  EventLoop loop_;
  Output output_;
  RankOutputs outputs_;
  std::optional<StoreServer> store_;  // another one for each start of the job
  RestartPolicy restarts_;
  Replacements replacements_;
  ProgressWatch progress_;
  JobValues values_;                      // of this start of the job
  std::vector<std::string> executables_;  // of each rank
  std::optional<StdinRelay> stdin_;

  JobResult result_;
  Phase phase_ = Phase::running;
  std::optional<Clock::time_point> phase_deadline_;
  std::optional<Clock::time_point> timeout_;
  Clock::time_point first_start_;
  Clock::time_point start_;
  std::optional<std::int64_t> oom_kills_at_start_;
  machine::BindingWarnings warnings_;
  int running_ = 0;
  int ended_ = 0;
  bool over_ = false;
  bool draining_ = false;
  bool stop_requested_ = false;  // by a signal or --timeout: no restart follows
  bool children_changed_ = false;
};

}  // namespace gantry::launcher
