#pragma once

#include <string>

namespace gantry::launcher {

/// The arguments of `glaunch dump`.
struct DumpRequest {
  std::string target = {};  ///< a job, a process id, a file (with a slash); empty: see `all`
  bool all = false;         ///< without a target: every group, not only those that matter now
  bool clear = false;       ///< removes the files of ended groups
  bool json = false;
};

}  // namespace gantry::launcher
