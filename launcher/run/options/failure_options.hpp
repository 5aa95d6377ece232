#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace gantry::launcher {

/// The ranks of --elastic MIN:MAX.
struct ElasticRange {
  int fewest = 1;  ///< ranks with which the job goes on
  int most = 2;    ///< ranks that it starts with, and has again when all are replaced
};

/// The limits of a job, and what follows a failure.
struct FailureOptions {
  std::chrono::milliseconds grace{15'000};  ///< between SIGTERM and SIGKILL
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<std::chrono::milliseconds> init_timeout;   ///< for all ranks to be in world()
  std::optional<std::chrono::milliseconds> stall_timeout;  ///< without progress in a call
  std::vector<int> forward;  ///< signal numbers handed on to the ranks
  bool keep_going = false;
  std::optional<ElasticRange> elastic;
  int max_restarts = 0;  ///< of the job; with `elastic`: of its ranks together
  std::chrono::milliseconds restart_delay{1000};  ///< pause before the first restart
  std::optional<std::string> report;              ///< path of the JSON file
};

}  // namespace gantry::launcher
