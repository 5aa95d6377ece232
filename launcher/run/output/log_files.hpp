#pragma once

#include <string>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

#include "launcher/run/options/output_options.hpp"
#include "launcher/run/output/stream.hpp"
#include "launcher/run/plan/plan.hpp"

namespace gantry::launcher {

/// The files of --log-dir: one for each output of each rank.
class LogFiles {
 public:
  /// Opens the files, or none without --log-dir. May wait for a slow file system: signals should
  /// still end glaunch. Throws: Error if the directory or a file cannot be written.
  LogFiles(const OutputOptions& options, const Plan& plan);

  /// The descriptor of a file, -1 for none.
  [[nodiscard]] int descriptor(int rank, Stream stream) const;
  [[nodiscard]] std::string path(int rank, Stream stream) const;

 private:
  std::string directory_;
  std::vector<UniqueFd> files_;  // two for each rank
};

}  // namespace gantry::launcher
