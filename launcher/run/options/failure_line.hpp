#pragma once

#include <optional>
#include <string>

#include "command_line/command_line.hpp"
#include "launcher/run/options/failure_options.hpp"

namespace gantry::launcher {

/// The options of a job's limits and failures.
class FailureLine {
 public:
  /// Adds them to a command line; `tail` is the one of --tail. All must outlive this.
  FailureLine(CommandLine& line, FailureOptions& options, int& tail);

  /// Enters what was on the command line into the options. Throws: InvalidArgument.
  void read() const;

 private:
  using Text = std::optional<std::string>;

  void read_elastic() const;

  FailureOptions& options_;
  Text grace_;
  Text timeout_;
  Text init_timeout_;
  Text stall_timeout_;
  Text forward_;
  Text elastic_;
  std::optional<int> max_restarts_;
  Text restart_delay_;
};

}  // namespace gantry::launcher
