#pragma once

#include <string>

#include "command_line/command_line.hpp"
#include "launcher/run/options/placement_options.hpp"

namespace gantry::launcher {

/// The options of a rank's place that `glaunch` and `glaunch shim` share.
class PlacementLine {
 public:
  /// Adds them to a command line. Both `line` and `options` must outlive this.
  PlacementLine(CommandLine& line, PlacementOptions& options);

  /// Enters what was on the command line into the options. Throws: InvalidArgument.
  void read() const;

 private:
  PlacementOptions& options_;
  std::string gpus_;
  std::string order_;
  std::string bind_;
  std::string mem_;
  std::string topo_file_;
  CommandLineOption per_device_option_;
  CommandLineOption gpus_option_;
  CommandLineOption order_option_;
  CommandLineOption bind_option_;
  CommandLineOption mem_option_;
  CommandLineOption topo_file_option_;
};

}  // namespace gantry::launcher
