#pragma once

#include <string>
#include <vector>

#include "command_line/command_line.hpp"
#include "launcher/run/options/placement_options.hpp"

namespace gantry::launcher {

/// The options of commands in front of the program, which `glaunch` and `glaunch shim` share.
class WrapperLine {
 public:
  /// Adds them to a command line. Both `line` and `options` must outlive this.
  WrapperLine(CommandLine& line, PlacementOptions& options);

  /// Enters what was on the command line into the options. Throws: InvalidArgument.
  void read() const;

 private:
  PlacementOptions& options_;
  std::string wrap_;
  std::vector<std::string> rank_wraps_;
  CommandLineOption wrap_option_;
};

}  // namespace gantry::launcher
