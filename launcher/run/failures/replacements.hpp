#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "job/elastic_job.hpp"
#include "launcher/run/failures/backoff.hpp"
#include "launcher/run/failures/report.hpp"
#include "launcher/run/options/failure_options.hpp"

namespace gantry::launcher {

/// Note [Elastic jobs]
/// A job of --elastic MIN:MAX has MAX ranks. A rank counts if it is one of the first processes, or
/// a replacement that has joined a group. A replacement that has not joined cannot continue the
/// work of the others. A failure does not end the job while MIN ranks count. glaunch starts a
/// replacement on the same device, with the same rank, and another number in the job's store. The
/// replacement waits in Communicator::world() until the others call grow(). Only replacements that
/// do not count wait in world(). So while the job runs, there is always a rank that can take them
/// in. When all ranks that count have ended, glaunch ends the waiting replacements.

/// The replacements of ranks of an elastic job: which are due, and which count.
class Replacements {
 public:
  /// Without --elastic no rank is replaced.
  Replacements(const FailureOptions& options, int ranks, Backoff::Now now = Clock::now);

  [[nodiscard]] bool is_elastic() const { return terms_.has_value(); }
  /// The number of the process of `rank` in the job's store.
  [[nodiscard]] int id_of(int rank) const;
  /// The ranks that count: running, and no replacement that waits. `store` is the job's.
  [[nodiscard]] std::vector<int> counted(const JobResult& job, Store& store) const;
  /// True if `rank` is a replacement that no group has taken in.
  [[nodiscard]] bool is_outside(int rank, Store& store) const;

  /// Plans a replacement of `rank`, which failed. The pause before it; none, and why, if `rank` is
  /// not replaced.
  [[nodiscard]] std::optional<std::chrono::milliseconds> plan(const RankResult& rank,
                                                              std::string& why);
  /// Forgets what is planned.
  void cancel();
  /// When the next replacement starts; none if none is planned.
  [[nodiscard]] std::optional<Clock::time_point> deadline() const;
  /// A rank whose replacement starts now; none if none is due.
  [[nodiscard]] std::optional<int> take_due();
  /// Numbers the process of `rank` that starts now, and returns the number of the replacement.
  int begin(int rank);
  /// Replacements that were planned.
  [[nodiscard]] int planned() const { return planned_; }

 private:
  struct Rank {
    ElasticTerms terms;  // of its process
    Backoff backoff;
    std::optional<Clock::time_point> due = {};
  };

  std::optional<ElasticTerms> terms_;
  int most_;
  Backoff::Now now_;
  std::vector<Rank> ranks_;
  int planned_ = 0;
  int begun_ = 0;
};

}  // namespace gantry::launcher
