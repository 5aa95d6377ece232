#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/run/failures/stall_watch.hpp"
#include "launcher/run/options/failure_options.hpp"

namespace gantry::launcher {

/// Notices jobs that do not begin, or get no further.
class ProgressWatch {
 public:
  using Clock = StallWatch::Clock;

  /// The result of a look.
  struct Look {
    std::optional<std::string> stop_cause = {};  ///< a clause: the job is to be stopped
    std::vector<std::string> messages = {};      ///< for the user, while the job goes on
  };

  /// `options` must outlive this.
  explicit ProgressWatch(const FailureOptions& options) : options_(options) {}

  /// The job starts, also again.
  void begin(Clock::time_point start);
  /// The ranks stood still for a while: the time since their last progress begins again.
  void forgive() { stall_.reset(); }
  /// When look() is due; none before the first begin().
  [[nodiscard]] std::optional<Clock::time_point> deadline() const;
  /// Looks at the job if that is due. `late_ranks` tells which ranks are not in world() yet.
  [[nodiscard]] Look look(Clock::time_point now, const std::string& job_id,
                          const std::function<std::vector<int>()>& late_ranks);

 private:
  const FailureOptions& options_;
  std::optional<Clock::time_point> init_deadline_;
  std::optional<Clock::time_point> look_;
  StallWatch stall_;
  bool is_stall_told_ = false;
};

}  // namespace gantry::launcher
