#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/run/failures/error_note.hpp"
#include "launcher/run/plan/plan.hpp"

namespace gantry::launcher {

/// Why a rank ended, or that it did not.
enum class ExitReason {
  not_started,
  still_running,  ///< it was killed, and its end was not seen
  ok,
  failed_by_itself,
  failed_because_of_another_rank,
  stopped_by_glaunch,
};

/// How one rank ended.
struct RankResult {
  int rank = 0;
  pid_t pid = -1;
  std::optional<int> device;
  std::string device_uuid;
  bool started = false;
  bool ended = false;
  int exit_code = 0;  ///< if no signal ended it
  int signal = 0;     ///< the signal that ended it, or 0
  bool core_dumped = false;
  bool out_of_memory = false;       ///< killed by the kernel for want of memory
  bool stopped_by_glaunch = false;  ///< it was still running when glaunch began to stop the job
  bool is_outside = false;          ///< a replacement that ended before a group took it in
  int order = -1;                   ///< 0 for the first rank to end, and so on
  std::chrono::milliseconds duration{0};
  std::string error;                          ///< what the rank wrote to its error file
  FailureCause cause = FailureCause::itself;  ///< of the failure, by that text
  std::vector<int> named_ranks;               ///< those ranks, if the text names them
  std::vector<std::string> tail;              ///< its last lines

  [[nodiscard]] bool failed() const { return ended && (exit_code != 0 || signal != 0); }
  /// True if its error says that it failed because of another rank.
  [[nodiscard]] bool is_secondary() const;
  [[nodiscard]] ExitReason exit_reason() const;
  /// "exited with code 7", "was killed by SIGSEGV (core dumped)", …
  [[nodiscard]] std::string how() const;
};

/// Why a job ended.
enum class Outcome {
  ok,
  rank_failed,
  timed_out,  ///< --timeout
  stalled,    ///< --init-timeout, --stall-timeout
  interrupted,
  not_started,
};

/// How an earlier start of a job ended.
struct EarlierRun {
  std::string job_id;
  int exit_code = 0;
  std::optional<int> first_failure;
};

/// How a job ended.
struct JobResult {
  Outcome outcome = Outcome::ok;
  int signal = 0;            ///< for Outcome::interrupted
  std::string start_error;   ///< for Outcome::not_started
  int start_error_code = 0;  ///< for Outcome::not_started: the exit code
  std::string stop_cause;    ///< for Outcome::stalled: a clause
  std::string job_id;
  std::string launcher;  ///< of a job on several machines: srun or mpirun, the only "rank"
  std::chrono::milliseconds duration{0};
  std::vector<RankResult> ranks;

  std::vector<EarlierRun> earlier_runs;  ///< those that were followed by a restart
  std::vector<RankResult> replaced;      ///< processes of ranks that have a replacement

  /// Findings from the flight files of the job.
  std::vector<std::string> sentences;

  /// The first rank to fail: one whose failure is not secondary, if there is one. A null pointer if
  /// none failed.
  [[nodiscard]] const RankResult* first_failure() const;
  /// The rank that ended the job: the first failure, or the rank that its error names, which need
  /// not have failed.
  [[nodiscard]] const RankResult* root_failure() const;
  /// The exit code of glaunch.
  [[nodiscard]] int exit_code() const;
};

/// Enters what a rank of a job of `ranks` ranks wrote to its error file.
void enter_note(RankResult& rank, const ErrorNote& note, std::size_t ranks);
/// Enters what the ranks wrote to their error files; `notes` are in rank order.
void enter_notes(JobResult& job, const std::vector<ErrorNote>& notes);

/// The report for people, one line each; empty if all went well.
[[nodiscard]] std::vector<std::string> describe_failure(const JobResult& job);

/// The identity of a failed rank, its end, its error file, and its last lines of output: one line
/// each.
[[nodiscard]] std::vector<std::string> describe_rank(const RankResult& rank);

/// The report for programs.
[[nodiscard]] std::string report_json(const JobResult& job, const Plan& plan);

/// Name of an outcome in the report: "ok", "rank_failed", …
[[nodiscard]] std::string_view name(Outcome outcome);
/// Name of an exit reason in the report: "ok", "failed_by_itself", …
[[nodiscard]] std::string_view name(ExitReason reason);

}  // namespace gantry::launcher
