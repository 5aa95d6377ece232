#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/command/command.hpp"

namespace gantry::launcher {

/// The records that `glaunch dump` prints.
struct DumpRequest {
  std::string target = {};  ///< a job, a process id, a file (with a slash); empty: see `all`
  bool all = false;         ///< without a target: every group, not only those that matter now
  bool clear = false;       ///< removes the files of ended groups
  bool json = false;
};

/// The command line of `glaunch dump`.
struct DumpOptions {
  std::string help;  ///< the text that --help asks for; empty: records are to be printed
  DumpRequest request;
  bool follow = false;                       ///< prints again and again
  std::chrono::milliseconds interval{1000};  ///< for `follow`
};

/// Parses the arguments behind `glaunch dump`. Throws: InvalidArgument.
[[nodiscard]] DumpOptions parse_dump(const std::vector<std::string>& arguments);

/// The output of `glaunch dump`. Without a target these are the groups with a living rank and those
/// of the newest job that broke. Throws: InvalidArgument.
[[nodiscard]] std::string dump(const DumpRequest& request);

/// Prints the dump again whenever a rank got further, or each time if `redraws`. Looks every
/// `interval`. Returns when the target's ranks have ended; without a target it does not return.
/// Throws: InvalidArgument; what `print` throws.
void follow_dump(const DumpRequest& request, std::chrono::milliseconds interval, bool redraws,
                 const std::function<void(const std::string& text)>& print);

/// `glaunch dump`: prints what the ranks of jobs are at.
extern const Command kDumpCommand;

}  // namespace gantry::launcher
